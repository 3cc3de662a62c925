"""What a group of values is: the slices left by reduced axes, or the ragged segments of a batch vector.

The mathematics is written once against these classes. A *statistic* has one entry per group; ``expand`` gives every
element the statistic of its own group. A group may have members in other processes too (``joint``): sums and extremes
are then those of all processes, ``here`` is the part in this one, and ``join`` adds up what the parts have found.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor


class Axes:
    """The values that share their kept coordinates form a group; statistics keep the reduced axes with size 1."""

    joint = False

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.dims = dims

    @property
    def here(self) -> Axes:
        """The members in this process."""
        return self

    def rows(self) -> Axes:
        """The same groups when they are laid out as rows."""
        return Axes((1,))

    def join(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Sums over the members here as sums over all members."""
        return statistics

    def agree(self, mask: Tensor) -> Tensor:
        """Where any process says so: what decides how often the others are asked must be the same everywhere."""
        return mask

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest of each group."""
        return self.min(values), self.max(values)

    def sum(self, values: Tensor) -> Tensor:
        return values.sum(self.dims, keepdim=True)

    def min(self, values: Tensor) -> Tensor:
        return values.amin(self.dims, keepdim=True)

    def max(self, values: Tensor) -> Tensor:
        return values.amax(self.dims, keepdim=True)

    def expand(self, statistic: Tensor) -> Tensor:
        return statistic  # broadcasting does it

    def count(self, values: Tensor) -> Tensor:
        """Number of elements in each group, as float64."""
        size = math.prod([values.shape[d] for d in self.dims])
        shape = [1 if d in self.dims else n for d, n in enumerate(values.shape)]
        return torch.full(shape, float(size), dtype=torch.float64, device=values.device)


class Segments:
    """Row i of the values belongs to segment ``index[i]``; statistics have one row per segment.

    Sums run in row order on CPU, so results repeat bit for bit. On CUDA they do under
    ``torch.use_deterministic_algorithms(True)``, as everything built on scatter.
    """

    joint = False

    def __init__(self, index: Tensor, number: int) -> None:
        self.index = index
        self.number = number

    @property
    def here(self) -> Segments:
        return self

    def join(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        return statistics

    def agree(self, mask: Tensor) -> Tensor:
        return mask

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        return self.min(values), self.max(values)

    def _per_element(self, values: Tensor) -> Tensor:
        return self.index.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)

    def _start(self, values: Tensor, fill: float) -> Tensor:
        return values.new_full((self.number, *values.shape[1:]), fill)

    def sum(self, values: Tensor) -> Tensor:
        wide = values.double() if values.is_floating_point() else values  # added one by one: float32 would lose digits
        return self._start(wide, 0).scatter_add(0, self._per_element(values), wide).to(values.dtype)

    def min(self, values: Tensor) -> Tensor:
        return self._start(values, math.inf).scatter_reduce(0, self._per_element(values), values, "amin")

    def max(self, values: Tensor) -> Tensor:
        return self._start(values, -math.inf).scatter_reduce(0, self._per_element(values), values, "amax")

    def expand(self, statistic: Tensor) -> Tensor:
        return statistic.index_select(0, self.index)

    def count(self, values: Tensor) -> Tensor:
        """Number of elements in each group, as float64."""
        return self.sum(torch.ones(values.shape, dtype=torch.float64, device=values.device))


Grouping: TypeAlias = Axes | Segments


def power_of_two(largest: Tensor) -> Tensor:
    """A power of two per group that brings its largest magnitude to between 1 and 2; 1 for 0, Inf and NaN."""
    exponent = largest.double().log2().floor()
    usable = largest.isfinite() & (largest > 0)
    return torch.where(usable, torch.exp2(-exponent.clamp(-1020, 1020)), 1.0)


def unit_weight(weight: Tensor, groups: Grouping, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights in units of about the largest of their group, in the given dtype, and the factor that made them so.

    Only ratios of weights matter to a center; products with values must neither overflow nor vanish.
    """
    factor = power_of_two(groups.max(weight.detach()))
    return (weight.double() * groups.expand(factor)).to(dtype), factor
