"""What the networks share: activations by name, sizes that scale, and the layer that standardizes the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ...nn import create_norm
from .newton import NEWTON, NewtonNorm

MakeNorm: TypeAlias = Callable[[int], nn.Module]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}


def make_activation(name: str) -> nn.Module:
    """An activation by name.

    Args:
        name: one of ``geonorm.lab.models.ACTIVATIONS``.

    Examples:
        >>> from geonorm.lab.models import make_activation
        >>> make_activation("tanh")
        Tanh()
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def norm_maker(norm: str | MakeNorm, dim: int = 2) -> MakeNorm:
    """A constructor of norm layers from a spec; a callable of the channel count stays as it is."""
    if not isinstance(norm, str):
        return norm
    if norm == NEWTON:
        return lambda channels: NewtonNorm(channels, learned=True)
    make: MakeNorm = create_norm(norm, dim=dim)
    return make


def scaled(number: int, factor: float) -> int:
    """A width or a depth times a factor, and at least 1."""
    if not factor > 0:
        raise ValueError(f"expected width and depth to be factors over 0 (got {factor})")
    return max(1, round(number * factor))


class Standardize(nn.Module):
    """The input less the mean of the training data, over its standard deviation; per channel or per feature.

    In the model rather than in the data: attacks and corruptions then act on the data as they are.

    Args:
        mean, std: one number per channel (dimension 1 of the input). Where std is 0 the input is only centered.

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import Standardize
        >>> Standardize([1.0, 0.0], [2.0, 0.0])(torch.tensor([[3.0, 5.0]]))
        tensor([[1., 5.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> None:
        super().__init__()
        center, spread = (torch.as_tensor(part, dtype=torch.float32).clone() for part in (mean, std))
        if center.dim() != 1 or center.shape != spread.shape:
            raise ValueError(
                "expected mean and std with one number per channel "
                f"(got shapes {tuple(center.shape)} and {tuple(spread.shape)})"
            )
        self.register_buffer("mean", center)
        self.register_buffer("std", torch.where(spread > 0, spread, torch.ones_like(spread)))

    def forward(self, x: Tensor) -> Tensor:
        """The standardized batch."""
        shape = [1, -1] + [1] * (x.dim() - 2)
        return (x - self.mean.view(shape)) / self.std.view(shape)
