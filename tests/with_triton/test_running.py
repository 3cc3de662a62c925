"""Running statistics and the guard's counts on the device, against ``ops/running.py`` in float64."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch

import geonorm
from geonorm.ops import triton as kernels
from geonorm.ops import using_backend
from geonorm.ops.triton import measure
from geonorm.ops.triton import running as on_device

LAYERS: dict[str, Any] = {
    "φ=1.5": lambda: geonorm.AugBatchNorm2d(5, phi=1.5),
    "robust": lambda: geonorm.AugBatchNorm2d(5, phi=1.5, spread="robust"),
    "φ=2": lambda: geonorm.AugBatchNorm2d(5, phi=2.0),
    "learned": lambda: geonorm.AugBatchNorm2d(5, learn_phi=True),
    "guard": lambda: geonorm.AugBatchNorm2d(5, phi=2.0, guard=2.0),
    "guard, cumulative": lambda: geonorm.AugBatchNorm2d(5, phi=2.0, guard=2.0, momentum=None),
    "POP-Norm": lambda: geonorm.PopNorm2d(5),
}


def batches() -> list[torch.Tensor]:
    found = [torch.randn(12, 5, 4, 4) * 2 + 1 for _ in range(3)]
    found[1][2] *= 40  # the guard pulls it
    found[2][:, 3] = float("nan")  # a channel of every sample: its buffers stay, or with a guard all of them
    return found


@pytest.mark.parametrize("in_parts", [False, True], ids=["in registers", "in parts"])
@pytest.mark.parametrize("name", LAYERS)
def test_buffers(name: str, in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_parts:
        monkeypatch.setattr(measure, "SMALL", 0)
    calls: list[int] = []
    real = on_device.update
    host = sys.modules["geonorm.ops.triton.normalize"]  # by that name the package has a function
    monkeypatch.setattr(host, "update", lambda *args: (calls.append(1), real(*args)))
    layer = LAYERS[name]()
    reference = copy.deepcopy(layer).double()
    for x in batches():
        layer(x)
        with using_backend("torch"):
            reference(x.double())
    assert len(calls) >= 2, "the kernel did not update the buffers"
    for key, value in layer.state_dict().items():
        expected = reference.state_dict()[key]
        torch.testing.assert_close(
            value.to(expected.dtype), expected, rtol=3e-6, atol=3e-6, msg=lambda m, k=key: f"{k}: {m}"
        )


def test_what_another_tool_wrote_is_adopted() -> None:
    """A tool made for torch writes the mean and the variance alone: center and scale start again from them."""
    layer = geonorm.AugBatchNorm2d(5, phi=1.5, spread="robust")
    reference = copy.deepcopy(layer).double()
    x = torch.randn(8, 5, 4, 4)
    for _ in range(2):
        layer(x)
        with using_backend("torch"):
            reference(x.double())
        for each in (layer, reference):
            each.running_mean.fill_(3.0)
            each.running_var.fill_(2.0)
    for key, value in layer.state_dict().items():
        torch.testing.assert_close(value.double(), reference.state_dict()[key].double(), rtol=3e-6, atol=3e-6)


def test_autograd_sees_that_the_buffers_changed() -> None:
    layer = geonorm.AugBatchNorm2d(5, phi=1.5)
    version = layer.running_mean._version
    layer(torch.randn(8, 5, 4, 4))
    assert layer.running_mean._version > version


def test_half_precision_buffers_are_left_to_torch() -> None:
    layer = geonorm.AugBatchNorm2d(5, phi=1.5).bfloat16()
    layer(torch.randn(8, 5, 4, 4).bfloat16())
    assert layer.num_batches_tracked == 1
    assert bool((layer.running_mean != 0).all())


def test_kernels_are_what_runs() -> None:
    assert kernels.why_not() is None
