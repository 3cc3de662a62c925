"""What must hold of any model of another library: φ=2 changes nothing, revert undoes it, fuse keeps outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import geonorm
from geonorm.introspect.layouts import is_norm


def nudge_norms(model: nn.Module) -> nn.Module:
    """Move the parameters and statistics of norms off their starting values; the model, in evaluation."""
    for module in model.modules():
        if is_norm(module):
            for parameter in module.parameters(recurse=False):
                parameter.data.add_(torch.rand_like(parameter) * 0.2)
            for buffer in module.buffers(recurse=False):
                if buffer.is_floating_point():
                    buffer.add_(torch.rand_like(buffer) * 0.2)
    return model.eval()


@torch.no_grad()
def eval_outputs(model: nn.Module, x: Any) -> Tensor:
    """In evaluation; of a mapping of inputs, the first output."""
    if isinstance(x, Tensor):
        return model.eval()(x)
    return model.eval()(**x)[0]


def check_convert_and_revert(model: nn.Module, x: Any, converted: int, tolerance: float) -> None:
    """As many norms as are known are converted; the model is the same at φ=2, and bit for bit after revert."""
    before = {key: value.clone() for key, value in model.state_dict().items()}
    expected = eval_outputs(model, x)
    report = geonorm.convert(model, "aug(phi=2)")
    assert len(report.changed) == converted, report
    torch.testing.assert_close(eval_outputs(model, x), expected, rtol=tolerance, atol=tolerance)
    geonorm.revert(model)
    after = model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert torch.equal(eval_outputs(model, x), expected)


def check_fuse(model: nn.Module, x: Any, fused: int, tolerance: float) -> None:
    """As many norms as are known go, the others stay with a reason, and the outputs are the same."""
    norms = sum(is_norm(module) for module in model.modules())
    expected = eval_outputs(model, x)
    report = geonorm.fuse(model, example=x if isinstance(x, Tensor) else tuple(x.values()))
    assert len(report.changed) == fused, report
    assert sum(is_norm(module) for module in model.modules()) == norms - fused
    torch.testing.assert_close(eval_outputs(model, x), expected, rtol=tolerance, atol=tolerance)
