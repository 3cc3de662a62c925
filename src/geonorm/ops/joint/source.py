"""Local statistics of a process: computed by torch here, by compiled kernels in ``kernels.py``.

Processes may mix the two, because one may have data that the kernels refuse: both send the same numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..grouping import Axes
from ..torch.norm import moments as moments_of
from ..torch.search import Sums
from ..torch.solver import measure_extent, solve, sweep, sweep_rows
from . import moments
from .arithmetic import power_of_two
from .moments import Moments

ROWS = Axes((1,))


class Points(NamedTuple):
    """The points of a sweep: per group, ``[groups, 1]`` in float64, in units of ``rescale``."""

    y: Tensor
    up: Tensor  # distance of the largest value, over all processes
    down: Tensor
    active: Tensor  # groups whose search goes on
    rescale: Tensor | None  # a power of two that brings extreme magnitudes to about 1; None for 1


class Source(Protocol):
    """The values of this process, a group per row."""

    def measure(self, phi: float | Tensor | None) -> Tensor:
        """The input of ``moments.exchange``; with an estimate of the center if φ is given."""

    def sums(self, at: Points, q: float | Tensor, near: bool, seen: Moments) -> Sums:
        """One sweep over the values of groups that are active."""

    def rows(self, seen: Moments) -> tuple[Tensor, Tensor | None]:
        """The values ``[groups, members]``, and weights in units of the heaviest. Ignored entries hold any value."""


class TorchSource:
    """A source in plain torch.

    Args:
        x: ``[groups, members]``, of the computing dtype.
        weight: of the same shape, or None.
        can_read: whether Python may read the data.
    """

    def __init__(self, x: Tensor, weight: Tensor | None, can_read: bool) -> None:
        self.x, self.weight, self.can_read = x, weight, can_read
        self._ready: tuple[Tensor, Tensor | None] | None = None

    def measure(self, phi: float | Tensor | None) -> Tensor:
        x, weight = self.x, self.weight
        found = moments.empty_part(len(x), x.device)
        if not x.shape[1]:
            return found
        mean, var = moments_of(x, weight, ROWS)
        present = None if weight is None else weight > 0
        low = ROWS.min(x if present is None else torch.where(present, x, math.inf))
        high = ROWS.max(x if present is None else torch.where(present, x, -math.inf))
        mass = ROWS.count(x) if weight is None else ROWS.sum(weight.double())
        heavy = torch.ones_like(mass) if weight is None else ROWS.max(weight)
        light = heavy if weight is None else ROWS.min(torch.where(weight > 0, weight, math.inf))
        start = mean.double() if phi is None or not self.can_read else self._guess(phi, mean, low, high)
        parts = (mean, var * mass, low, high, mass, heavy, light, torch.where(mass > 0, start, 0.0))
        for column, value in enumerate(parts):
            found[:, column] = value[:, 0]
        return found

    def _guess(self, phi: float | Tensor, mean: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The center of the values in this process."""
        largest = torch.maximum(high, -low)
        limit = 2.0**60 if self.x.dtype == torch.float32 else 2.0**500
        if not bool(((largest < limit) & (largest > 1 / limit)).all()):
            return mean.double()
        x, weight = self.x, self.weight
        if weight is not None:
            x = torch.where(weight > 0, x, low)
            weight = (weight.double() * power_of_two(ROWS.max(weight))).to(x.dtype)
        return solve(x, phi, weight, ROWS, measure_extent(x, weight, ROWS, (low, high))).center

    def rows(self, seen: Moments) -> tuple[Tensor, Tensor | None]:
        if self._ready is None:
            x, weight = self.x, self.weight
            if weight is not None:
                x = torch.where(weight > 0, x, torch.where(seen.mass > 0, seen.lowest, 0.0).to(x.dtype))
                weight = weight.double() * power_of_two(seen.heaviest)
            self._ready = x, weight
        return self._ready

    def sums(self, at: Points, q: float | Tensor, near: bool, seen: Moments) -> Sums:
        x, weight = self.rows(seen)
        if at.rescale is not None:
            x = x * at.rescale.to(x.dtype)
        weight = None if weight is None else weight.to(x.dtype)
        if not self.can_read:
            return sweep(x, weight, at.y, at.up, at.down, q, ROWS, near)
        return sweep_rows(x, weight, at.y, at.up, at.down, q, near, at.active[:, 0])
