"""The rows that forward saves for backward, with the columns of ``problem.COLUMNS``."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import problem
from ..precision import wide_dtype
from ..torch.search import smallest_distance
from .spread import Spread


class SavedRows:
    """A table ``[groups, columns]``. Numbers that are used in the computing dtype are rounded to it."""

    def __init__(self, groups: int, device: torch.device, dtype: torch.dtype) -> None:
        self.dtype = dtype
        size = (groups, len(problem.COLUMNS))
        self.table = torch.zeros(size, dtype=wide_dtype(device), device=device)

    def column(self, column: int) -> Tensor:
        return self.table[:, column, None].double()

    def write(self, column: int, value: Tensor) -> None:
        self.table[:, column] = value.reshape(-1)

    def write_rounded(self, column: int, value: Tensor) -> Tensor:
        """Write a column in the computing dtype, and return what was written."""
        self.write(column, value.to(self.dtype))
        return self.column(column)

    def write_distances(self, center: Tensor, lowest: Tensor, highest: Tensor, unit: int, least: int) -> None:
        """Write the largest distance from a center, 0 for equal values, and the relative rounding error of it."""
        reach = torch.maximum(highest - center, center - lowest)
        some = (lowest < highest) & reach.isfinite()
        self.write(unit, torch.where(some, reach, 0.0))
        tallest = torch.maximum(highest, -lowest)
        rounding = 4 * torch.finfo(self.dtype).eps * tallest / torch.where(reach > 0, reach, 1.0)
        self.write(least, torch.where(some, rounding, 0.0).clamp_min(smallest_distance()))

    def write_robust_spread(self, found: Spread) -> None:
        """Write the columns of a robust spread."""
        middle = self.write_rounded(problem.MIDDLE, found.middle)
        self.write_rounded(problem.LOWER_2, found.lower)
        self.write_rounded(problem.UPPER_2, found.upper)
        self.write(problem.FLOORED, found.floored)
        self.write_distances(middle, found.smallest, found.largest, problem.UNIT_2, problem.LEAST_2)
