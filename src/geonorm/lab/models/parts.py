"""Common parts of the networks: activations and norms by name, and scaled sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import nn

from ...nn import create_norm

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
        raise ValueError(f"unknown activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def norm_maker(norm: str | MakeNorm, dim: int = 2) -> MakeNorm:
    """A constructor of norm layers from a spec; a callable of the channel count stays as it is."""
    if not isinstance(norm, str):
        return norm
    make: MakeNorm = create_norm(norm, dim=dim)
    return make


def scaled(number: int, factor: float) -> int:
    """A width or a depth times a factor, and at least 1."""
    if not factor > 0:
        raise ValueError(f"expected width and depth to be factors above 0 (got {factor})")
    return max(1, round(number * factor))
