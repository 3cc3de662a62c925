"""The rows that forward keeps for backward, as ``problem.COLUMNS`` has them."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import problem
from ..precision import wide_dtype
from ..torch.search import smallest_distance
from .spread import Spread


class Kept:
    """The rows that are kept, ``[groups, columns]``: numbers that are used in the computing dtype are rounded to it."""

    def __init__(self, groups: int, device: torch.device, dtype: torch.dtype) -> None:
        self.dtype = dtype
        size = (groups, len(problem.COLUMNS))
        self.table = torch.zeros(size, dtype=wide_dtype(device), device=device)

    def of(self, column: int) -> Tensor:
        return self.table[:, column, None].double()

    def keep(self, column: int, value: Tensor) -> None:
        self.table[:, column] = value.reshape(-1)

    def set(self, column: int, value: Tensor) -> Tensor:
        """Rounded."""
        self.keep(column, value.to(self.dtype))
        return self.of(column)

    def distances(self, center: Tensor, lowest: Tensor, highest: Tensor, unit: int, least: int) -> None:
        """The largest distance from a center, 0 for equal values; and the share of it that is rounding."""
        reach = torch.maximum(highest - center, center - lowest)
        some = (lowest < highest) & reach.isfinite()
        self.keep(unit, torch.where(some, reach, 0.0))
        tallest = torch.maximum(highest, -lowest)
        rounding = 4 * torch.finfo(self.dtype).eps * tallest / torch.where(reach > 0, reach, 1.0)
        self.keep(least, torch.where(some, rounding, 0.0).clamp_min(smallest_distance()))

    def spread(self, found: Spread) -> None:
        """Of a robust spread."""
        middle = self.set(problem.MIDDLE, found.middle)
        self.set(problem.LOWER_2, found.lower)
        self.set(problem.UPPER_2, found.upper)
        self.keep(problem.FLOORED, found.floored)
        self.distances(middle, found.smallest, found.largest, problem.UNIT_2, problem.LEAST_2)
