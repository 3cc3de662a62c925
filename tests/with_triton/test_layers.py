"""Every layer of the harness: training steps on the kernels equal those of torch in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from geonorm.ops import problem, using_backend
from geonorm.ops import triton as kernels
from helpers.layer_cases import CASES, LayerCase, randomize_parameters

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "robust": {"spread": "robust"},
    "learned": {"learn_phi": True},
}


def same(case: LayerCase, mine: torch.nn.Module, other: torch.nn.Module, x: torch.Tensor) -> None:
    g = torch.randn(x.shape)
    leaf, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    y = case.call(mine, leaf)
    y.backward(g)
    with using_backend("torch"):
        expected = case.call(other, wide)
        expected.backward(g.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    # A value next to the center counts as much as it is near (φ < 2): the rounding of float32 is magnified there.
    torch.testing.assert_close(leaf.grad.double(), wide.grad, rtol=2e-3, atol=2e-3)
    for (name, one), two in zip(mine.named_parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), name
        if one.grad is not None and two.grad is not None:
            torch.testing.assert_close(one.grad.double(), two.grad, rtol=2e-3, atol=2e-3)
    for key, value in mine.state_dict().items():
        torch.testing.assert_close(value.double(), other.state_dict()[key].double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(case, name, id=f"{case.name}-{name}")
        for case in CASES
        for name in OPTIONS
        if not (case.pop and name == "learned")  # POP-Norm learns no φ
    ],
)
def test_a_step(case: LayerCase, name: str) -> None:
    layer = randomize_parameters(case.make(**OPTIONS[name]))
    same(case, layer, copy.deepcopy(layer).double(), case.input(torch.float32))


def test_which_layers_have_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but POP-Norm of channels inside groups, whose shift varies there."""
    taken: dict[str, bool] = {}
    real = kernels.normalize

    for case in CASES:
        written: list[float] = []

        def spy(*args: Any, written: list[float] = written) -> Any:
            found = real(*args)
            written.append(-1.0 if found is None else float(found.saved.groups[0, problem.BY]))
            return found

        monkeypatch.setattr(kernels, "normalize", spy)
        case.call(case.make(), case.input(torch.float32))
        taken[case.name] = written == [problem.BY_TRITON]
    assert [name for name, found in taken.items() if not found] == ["PopGroupNorm"]


def test_a_short_training_learns() -> None:
    torch.manual_seed(0)
    import geonorm

    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), geonorm.AugBatchNorm1d(8, phi=1.5), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )
    x = torch.randn(64, 4)
    target = x[:, :1] * 2 - x[:, 1:2]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(15):
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]
