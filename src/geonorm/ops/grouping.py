"""Groups of values: the slices left by reduced axes, or the ragged segments of a batch vector.

The mathematics is written once against these classes. A *statistic* has one entry per group; ``expand`` gives every
element the statistic of its own group. A group may have members in other processes too (``joint``). Sums then cover
the members in this process, ``gather`` and ``join`` combine the processes' results, and ``ops.joint`` uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from .precision import wide, wide_dtype


class TooFewValues(Exception):
    """Groups over several processes have fewer values than the caller needs; ``number`` is how many they have."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} values per group in all processes")
        self.number = number


class Axes:
    """The values that share their kept coordinates form a group; statistics keep the reduced axes with size 1."""

    joint = False
    name = ""  # torch's name of the process group
    fewest = 0  # values per group that a joint normalization needs
    # Constructor for a named process group; ``geonorm.distributed`` sets it.
    over_processes: ClassVar[Callable[[tuple[int, ...], str], Axes]]

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.dims = dims

    @property
    def here(self) -> Axes:
        """The members in this process."""
        return self

    def gather(self, values: Tensor) -> Tensor:
        """A tensor of the same shape from every process, ``[processes, ...]``."""
        return values.unsqueeze(0)

    def join(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Sums over all members, from the sums over the members in this process."""
        return statistics

    def gather_rows(self, *tensors: Tensor) -> tuple[list[Tensor], slice]:
        """Tensors with a row per sample from all processes, and the slice of rows that belongs to this one."""
        return list(tensors), slice(None)

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
        """Number of elements in each group, in the widest dtype."""
        size = math.prod([values.shape[d] for d in self.dims])
        shape = [1 if d in self.dims else n for d, n in enumerate(values.shape)]
        return torch.full(shape, float(size), dtype=wide_dtype(values.device), device=values.device)


class Segments:
    """Row i of the values belongs to segment ``index[i]``; statistics have one row per segment.

    Sums run in row order on CPU, so results repeat bit for bit. On CUDA they do under
    ``torch.use_deterministic_algorithms(True)``, as everything built on scatter.
    """

    joint = False

    def __init__(self, index: Tensor, number: int) -> None:
        self.index = index
        self.number = number

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        return self.min(values), self.max(values)

    def _per_element(self, values: Tensor) -> Tensor:
        return self.index.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)

    def _start(self, values: Tensor, fill: float) -> Tensor:
        return values.new_full((self.number, *values.shape[1:]), fill)

    def sum(self, values: Tensor) -> Tensor:
        added = wide(values) if values.is_floating_point() else values  # a long sum in float32 would lose digits
        return self._start(added, 0).scatter_add(0, self._per_element(values), added).to(values.dtype)

    def min(self, values: Tensor) -> Tensor:
        return self._start(values, math.inf).scatter_reduce(0, self._per_element(values), values, "amin")

    def max(self, values: Tensor) -> Tensor:
        return self._start(values, -math.inf).scatter_reduce(0, self._per_element(values), values, "amax")

    def expand(self, statistic: Tensor) -> Tensor:
        return statistic.index_select(0, self.index)

    def count(self, values: Tensor) -> Tensor:
        """Number of elements in each group, in the widest dtype."""
        return self.sum(torch.ones(values.shape, dtype=wide_dtype(values.device), device=values.device))


Grouping: TypeAlias = Axes | Segments


def power_of_two(largest: Tensor) -> Tensor:
    """A power of two per group that brings its largest magnitude to between 1 and 2; 1 for 0, Inf and NaN."""
    exponent = wide(largest).log2().floor()
    limit = 1020 if exponent.dtype == torch.float64 else 124
    usable = largest.isfinite() & (largest > 0)
    return torch.where(usable, torch.exp2(-exponent.clamp(-limit, limit)), 1.0)


def unit_weight(weight: Tensor, groups: Grouping, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights scaled so that the largest of each group is about 1, in the given dtype, and the scale factors.

    Only ratios of weights matter to a center; products with values must neither overflow nor vanish.
    """
    factor = power_of_two(groups.max(weight.detach()))
    return (wide(weight) * groups.expand(factor)).to(dtype), factor
