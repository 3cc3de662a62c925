"""The condition of inputs, planted and against Gauss-Newton blocks by autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import curvature
from helpers.float64_classifier import seeded_randn64


def test_condition_of_inputs() -> None:
    """Planted: inputs of standard deviations 1 and 10, then a mean that a bias sees, then a direction never seen."""
    white = seeded_randn64(200, 2)
    white = torch.linalg.qr(white - white.mean(0)).Q * 200**0.5
    x, target = white * torch.tensor([1.0, 10.0]), torch.zeros(200, dtype=torch.long)

    def condition(x: Tensor, bias: bool) -> float:
        model = nn.Linear(2, 3, bias=bias).double()
        (block,) = curvature(nn.Sequential(model), (x, target), hessian=False).blocks[1:]
        return block.condition

    assert condition(x, bias=False) == pytest.approx(100, rel=1e-9)
    assert condition(x, bias=True) == pytest.approx(100, rel=1e-9)
    mean = 5.0
    joint = torch.tensor([[1 + mean**2, 0, mean], [0, 100.0, 0], [mean, 0, 1]]).double()  # block of (w, b)
    shifted = x + torch.tensor([mean, 0.0])
    assert condition(shifted, bias=True) == pytest.approx(float(torch.linalg.cond(joint)), rel=1e-9)
    assert condition(x * torch.tensor([1.0, 0.0]), bias=False) == math.inf


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=1, bias=False),
        nn.Conv2d(4, 6, (1, 2), groups=2, bias=False),
        nn.Conv1d(4, 6, 3, padding=2, dilation=2, bias=False),
    ],
)
def test_condition_of_patches_is_that_of_the_gauss_newton_block(layer) -> None:
    """For a sum of squares the Hessian of a convolution's weight is 2·Σzzᵗ for each output row, by autograd."""
    shape = (6, 4, 9) if isinstance(layer, nn.Conv1d) else (6, 4, 7, 8)
    model, x = nn.Sequential(layer.double()), seeded_randn64(*shape)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return output.square().flatten(1).sum(1)

    def value(weight: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (x,)).square().sum()

    size = layer.weight.numel()
    hessian = torch.autograd.functional.hessian(value, layer.weight.detach()).reshape(size, size)
    block = curvature(model, (x, torch.zeros(6)), loss, hessian=False).blocks[1]
    rows = layer.weight[0].numel()
    first = torch.linalg.cond(hessian[:rows, :rows])
    last = torch.linalg.cond(hessian[-rows:, -rows:])
    assert block.condition == pytest.approx(float(torch.maximum(first, last)), rel=1e-6)
