"""Pulling far samples onto the ball of the guard, as a differentiable function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops import Inputs, can_read_values
from ..ops.torch import guard


def pull(x: Tensor, factor: Tensor, center: Tensor) -> Tensor:
    """x, (N, C, *), with every sample's offset from the center scaled by its factor; unchanged where that is 1."""
    if can_read_values(factor) and bool((factor == 1).all()):
        return x.view_as(x)
    pulled: Tensor = _Pull.apply(x, factor, center)  # type: ignore[no-untyped-call]
    return pulled


def pull_in(of: Inputs, factor: Tensor, center: Tensor, joint: bool) -> Inputs:
    """The inputs of a normalization after the guard."""
    return guard.pulled_inputs(of, factor, center, joint, pull)


class _Pull(torch.autograd.Function):
    """y + f·(x − y). The gradient is f times that of the output: y and f are constants. 0 where f is NaN."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: Tensor, center: Tensor) -> Tensor:
        return guard.pull(x, factor, center)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = ctx.saved_tensors
        f = factor.reshape(-1, *[1] * (grad.dim() - 1))
        return torch.where(f.isnan(), 0.0, grad * f.to(grad.dtype)), None, None
