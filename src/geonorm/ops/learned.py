"""A learned φ that stays inside its range whatever the optimizer does."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


def flat_from() -> float:
    """|θ + θ₀| from which the sigmoid counts as flat: φ is within 1.1 % of an end of its range.

    A function instead of a constant: see ``search.smallest_distance``.
    """
    return 4.5


class LearnedPhi(NamedTuple):
    """φ = low + (high − low)·sigmoid(offset + start), not yet computed: the backends do that.

    ``offset`` broadcasts over the kept dimensions. Near the ends of the range the sigmoid is flat. A gradient that
    leads away from an end gets the slope at ``flat_from`` instead, so that φ can always come back.
    """

    offset: Tensor
    low: float
    high: float
    start: float

    def value(self) -> Tensor:
        fraction: Tensor = _Sigmoid.apply(self.offset + self.start)  # type: ignore[no-untyped-call]
        return self.low + (self.high - self.low) * fraction

    def gradient(self, grad: Tensor) -> Tensor:
        """The gradient of the offset from that of φ."""
        return (self.high - self.low) * _slope(self.offset + self.start, grad) * grad


def constants_of(given: LearnedPhi) -> tuple[float, float, float]:
    """All but the offset: torch 2.9 compiles neither a slice nor a property of a named tuple."""
    return given.low, given.high, given.start


def _slope(t: Tensor, grad: Tensor) -> Tensor:
    slope = torch.sigmoid(t) * torch.sigmoid(-t)
    least = 1 / (math.exp(flat_from() / 2) + math.exp(-flat_from() / 2)) ** 2  # the slope there
    leads_back = (grad * t > 0) & (t.abs() > flat_from())  # a step goes against the gradient
    return torch.where(leads_back, least, slope)


class _Sigmoid(torch.autograd.Function):
    """The sigmoid. Gradients that lead back to 0 get at least its slope at ``flat_from``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor) -> Tensor:
        return torch.sigmoid(t)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (t,) = ctx.saved_tensors
        return grad * _slope(t, grad)
