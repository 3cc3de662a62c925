"""AugNorm by plain Newton steps, for comparisons: of speed, and of an unbounded learned φ."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NEWTON = "newton"  # its name among the norms of a study, with a learned φ


class NewtonNorm(nn.Module):
    """AugNorm by eight Newton steps from the mean, each recorded by autograd.

        y ← y + Σ sgn(x − y)|x − y|^(φ−1) / ((φ − 1) Σ |x − y|^(φ−2))

    The steps and their number are those of AugNorm on graphs, with the sign corrected (E2 of the errata). The backward
    pass differs: the paper has one in closed form, and calls recorded steps too memory intensive. The steps need not
    converge, and a learned φ may leave the range in which there is a center.

    Args:
        channels: number of channels.
        phi: the exponent.
        learned: learn one φ per channel, without bounds.

    Examples:
        >>> import torch
        >>> from studies.models.newton import NewtonNorm
        >>> NewtonNorm(3)(torch.randn(8, 3)).shape
        torch.Size([8, 3])
    """

    running_center: Tensor
    running_var: Tensor

    def __init__(self, channels: int, phi: float = 1.5, learned: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        start = torch.full((channels,), phi)
        self.phi: Tensor = nn.Parameter(start) if learned else start
        self.register_buffer("running_center", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each channel, in training by the batch and in evaluation by running statistics."""
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        center, variance = self.running_center.view(shape), self.running_var.view(shape)
        if self.training:
            center = self._center(x, dims, shape)
            variance = (x - center).square().mean(dims, keepdim=True)
            with torch.no_grad():
                self.running_center.lerp_(center.flatten(), 0.1)
                self.running_var.lerp_(variance.flatten(), 0.1)
        return (x - center) * (variance + 1e-5).rsqrt() * self.weight.view(shape) + self.bias.view(shape)

    def _center(self, x: Tensor, dims: list[int], shape: list[int]) -> Tensor:
        phi = self.phi.view(shape)
        center = x.mean(dims, keepdim=True)
        for _ in range(8):
            r = x - center
            size = r.abs() + 1e-6
            slope = (phi - 1) * size.pow(phi - 2)
            center = center + (r.sign() * size.pow(phi - 1)).sum(dims, keepdim=True) / slope.sum(dims, keepdim=True)
        return center
