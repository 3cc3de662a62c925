"""What the layers are compared with, beside torch's own: the usual ways to write such a norm in eager torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class NewtonNorm(nn.Module):
    """The published recipe: eight Newton steps from the mean, each recorded by autograd.

        y ← y + Σ sgn(x − y)|x − y|^(φ−1) / ((φ − 1) Σ |x − y|^(φ−2))

    Args:
        channels: number of channels.
        phi: the exponent.
        learned: learn one φ per channel, without bounds.
    """

    def __init__(self, channels: int, phi: float = 1.5, learned: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        start = torch.full((channels,), phi)
        self.phi: Tensor = nn.Parameter(start) if learned else start

    def forward(self, x: Tensor) -> Tensor:
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        phi = self.phi.view(shape)
        center = x.mean(dims, keepdim=True)
        for _ in range(8):
            r = x - center
            size = r.abs() + 1e-6
            slope = (phi - 1) * size.pow(phi - 2)
            center = center + (r.sign() * size.pow(phi - 1)).sum(dims, keepdim=True) / slope.sum(dims, keepdim=True)
        z = x - center
        variance = z.square().mean(dims, keepdim=True)
        return z * (variance + 1e-5).rsqrt() * self.weight.view(shape) + self.bias.view(shape)


class MedianNorm(nn.Module):
    """The median by ``torch.median`` in the place of the mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        median = x.movedim(1, 0).flatten(1).median(1).values.view(shape)
        z = x - median
        variance = z.square().mean(dims, keepdim=True)
        return z * (variance + 1e-5).rsqrt() * self.weight.view(shape) + self.bias.view(shape)


class Clone(nn.Module):
    """A copy: what reading and writing the tensor costs, and nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()
