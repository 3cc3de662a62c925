"""Groups of values whose members are spread over processes.

Processes exchange a few numbers per group, in float64; never the values, except those around a median and the moments
of guarded samples. A process without values takes part.

No process decides alone: the number of collectives depends on shapes, options and numbers that all of them have
received, and ``geonorm.ops.joint`` uses arithmetic that gives the same results on different machines.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..ops import Axes
from .collect import all_gather, all_reduce_sum
from .gather import gather_rows
from .groups import members


def grouping(dims: tuple[int, ...], group: str | None, fewest: int = 0) -> Axes:
    """The groups over the reduced axes, in this process or over a process group."""
    if group is None:
        return Axes(dims)
    name, size = members(group)
    return Axes(dims) if size == 1 else Across(dims, name, fewest)


class Across(Axes):
    """``Axes`` over all processes of the group that torch calls ``name``.

    ``fewest``: with fewer values per group in all processes together, each of them raises ``TooFewValues``.
    """

    joint = True

    def __init__(self, dims: tuple[int, ...], name: str, fewest: int = 0) -> None:
        super().__init__(dims)
        self.name, self.fewest = name, fewest

    @property
    def here(self) -> Axes:
        return Axes(self.dims)

    def gather(self, values: Tensor) -> Tensor:
        return all_gather(values, self.name)

    def join(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        total = all_reduce_sum(torch.cat([value.double().reshape(-1) for value in statistics]), self.name)
        parts = total.split([value.numel() for value in statistics])
        return tuple([part.view(value.shape).to(value.dtype) for part, value in zip(parts, statistics, strict=True)])

    def gather_rows(self, *tensors: Tensor) -> tuple[list[Tensor], slice]:
        return gather_rows(self.name, *tensors)

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        if values.numel():
            ends = torch.stack(super().extremes(values))
        else:
            nothing = self.here.sum(values)
            ends = torch.stack([nothing + math.inf, nothing - math.inf])
        low, high = self.gather(ends).unbind(1)
        return low.amin(0), high.amax(0)


Axes.over_processes = Across
