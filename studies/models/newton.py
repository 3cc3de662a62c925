"""AugNorm by plain Newton steps, for comparisons: of speed, and of an unbounded learned φ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Its names among the norms of a study: whether φ is learned, and whether the backward pass is the closed form.
NEWTONS = {
    "newton": (True, False),
    "newton_fixed": (False, False),
    "newton_closed": (True, True),
    "newton_closed_fixed": (False, True),
}
_STEPS = 8
_SMALLEST = 1e-6  # of a distance, since negative powers of it are needed


def newton_center(x: Tensor, phi: Tensor, dims: list[int], steps: int = _STEPS) -> Tensor:
    """The center after some Newton steps from the mean.

        y ← y + Σ sgn(x − y)|x − y|^(φ−1) / ((φ − 1) Σ |x − y|^(φ−2))

    Args:
        x: the samples.
        phi: the exponents, to be broadcast.
        dims: the dimensions of x to reduce.
        steps: their number; those of the paper are eight.
    """
    center: Tensor = x.mean(dims, keepdim=True)
    for _ in range(steps):
        r = x - center
        size = r.abs() + _SMALLEST
        slope = (phi - 1) * size.pow(phi - 2)
        center = center + (r.sign() * size.pow(phi - 1)).sum(dims, keepdim=True) / slope.sum(dims, keepdim=True)
    return center


class _ClosedForm(torch.autograd.Function):
    """The same steps, with the derivatives of a minimum: those of the paper with its errors E3 and E5 corrected."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, phi: Tensor, dims: list[int]) -> Tensor:
        center = newton_center(x, phi, dims)
        ctx.save_for_backward(x, phi, center)
        ctx.dims = dims
        return center

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, phi, center = ctx.saved_tensors
        r = x - center
        size = r.abs() + _SMALLEST
        weights = size.pow(phi - 2)
        whole = weights.sum(ctx.dims, keepdim=True)
        rise = (r * weights * (1 + phi * size.log())).sum(ctx.dims, keepdim=True) / ((phi - 1) * phi * whole)
        return grad * weights / whole, grad * rise, None


class NewtonNorm(nn.Module):
    """AugNorm over the batch by eight Newton steps from the mean.

    The steps and their number are those of AugNorm on graphs, with the sign corrected (E2 of the errata). They need not
    converge, and a learned φ may leave the range in which there is a center.

    Args:
        channels: number of channels.
        phi: the exponent.
        learned: learn one φ per channel, without bounds.
        closed: backward pass in closed form, as in the paper; else autograd records every step.

    Examples:
        >>> import torch
        >>> from studies.models.newton import NewtonNorm
        >>> NewtonNorm(3)(torch.randn(8, 3)).shape
        torch.Size([8, 3])
    """

    running_center: Tensor
    running_var: Tensor

    def __init__(self, channels: int, phi: float = 1.5, learned: bool = False, closed: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        start = torch.full((channels,), phi)
        self.phi: Tensor = nn.Parameter(start) if learned else start
        self.closed = closed
        self.register_buffer("running_center", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each channel, in training by the batch and in evaluation by running statistics."""
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        center, variance = self.running_center.view(shape), self.running_var.view(shape)
        if self.training:
            phi = self.phi.view(shape)
            make = _ClosedForm.apply if self.closed else newton_center
            center = make(x, phi, dims)
            variance = (x - center).square().mean(dims, keepdim=True)
            with torch.no_grad():
                self.running_center.lerp_(center.flatten(), 0.1)
                self.running_var.lerp_(variance.flatten(), 0.1)
        return (x - center) * (variance + 1e-5).rsqrt() * self.weight.view(shape) + self.bias.view(shape)
