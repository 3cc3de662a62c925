"""No device is assumed: nothing waits for the data off the CPU, and no float64 is made where there is none.

There is no other device here, so these run on shapes alone: fake tensors raise when their values are read. Those of
CUDA or MPS need a torch that is built for them; those of torch's "lazy" device do not, and stand for any other device.
"""

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import geonorm
from geonorm.ops import Axes, Grouping, Incoming, Inputs, Rule, Segments, choose, precision
from helpers.slow_cases import slow_except

PHIS = [1.0, 1.5, 2.0, 3.0, math.inf, "tensor", "learned"]
POWERS = [2.0, 1.0, math.inf, None, 3.0]


class NoFloat64(TorchDispatchMode):
    """Raises where one is made, as a device that has none would."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        wide = [t for t in tree_iter(found) if isinstance(t, Tensor) and t.dtype == torch.float64]
        assert all(t.device.type == "cpu" for t in wide), f"{func} made float64"
        return found


def step(device: str, phi: Any, power: float | None, guard: float | None, weighted: bool, ragged: bool) -> None:
    """A forward and a backward of the torch backend."""
    x = torch.empty((8, 4) if ragged else (8, 4, 5, 5), device=device)
    shape = (1, 4) if ragged else (1, 4, 1, 1)
    index = torch.empty(8, dtype=torch.int64, device=device)
    groups: Grouping = Segments(index, 3) if ragged else Axes((0, 2, 3))
    exponent = torch.empty(shape, device=device) if isinstance(phi, str) else phi
    learned = (1.2, 3.0, 0.1) if phi == "learned" else None
    rule = Rule(power=power, guard=guard, phi_strictly_inside=learned is not None, learned=learned)
    gamma, beta = torch.empty(shape, device=device), torch.empty(shape, device=device)
    of = Inputs(x, exponent, 1.0, None, gamma, beta, torch.empty_like(x) if weighted else None)
    y, saved, _ = choose.normalize(of, groups, rule)
    assert y.shape == x.shape
    needs = (True, isinstance(exponent, Tensor), False, False, True, True, weighted)
    dx, *_ = choose.normalize_backward(Incoming(torch.empty_like(x)), of, groups, rule, saved, needs)
    assert dx is not None
    assert dx.shape == x.shape


@pytest.mark.parametrize("device", slow_except(["lazy without float64"], ["meta", "lazy", "lazy without float64"]))
@pytest.mark.parametrize("phi", PHIS, ids=str)
@pytest.mark.parametrize("guard", [None, 3.0])
def test_nothing_waits_for_the_data(
    device: str, phi: Any, guard: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = device == "lazy without float64"
    if narrow:
        monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {"lazy"})
    for power in POWERS:
        for weighted in (False, True):
            for ragged in (False, True) if guard is None else (False,):
                with nullcontext() if device == "meta" else FakeTensorMode(), NoFloat64() if narrow else nullcontext():
                    step("meta" if device == "meta" else "lazy:0", phi, power, guard, weighted, ragged)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: geonorm.nn.AugBatchNorm2d(4),
        lambda: geonorm.nn.AugBatchNorm2d(4, learn_phi=True, spread="robust"),
        lambda: geonorm.nn.AugBatchNorm2d(4, phi=2.0, guard=3.0),
        lambda: geonorm.nn.PopNorm2d(4),
        lambda: geonorm.nn.AugLayerNorm((4, 5, 5)),
        lambda: geonorm.nn.AugGroupNorm(2, 4, phi=1.0),
        lambda: geonorm.nn.AugInstanceNorm2d(4, affine=True),
    ],
)
def test_layers_on_another_device(layer: Any) -> None:
    """Training and evaluation, forward and backward, with buffers that follow."""
    with FakeTensorMode():
        with torch.device("lazy"):
            module = layer()
        for _ in range(2):
            x = torch.empty(8, 4, 5, 5, device="lazy", requires_grad=True)
            y = module(x)
            assert y.shape == x.shape
            assert y.device.type == "lazy"
            y.backward(torch.empty_like(y))
            assert x.grad is not None
            assert x.grad.device.type == "lazy"
            module.eval()
