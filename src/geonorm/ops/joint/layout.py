"""Converting groups to rows and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from ..grouping import Axes
from ..problem import statistics_shape


class Layout:
    """Turns the groups of a tensor into rows of a matrix, and statistics per row into statistics of the tensor."""

    def __init__(self, shape: Sequence[int], groups: Axes) -> None:
        self.kept = [d for d in range(len(shape)) if d not in groups.dims]
        self.dims = groups.dims
        self.groups = math.prod([shape[d] for d in self.kept])
        self.members = math.prod([shape[d] for d in groups.dims])
        self.statistics = statistics_shape(shape, groups)

    def rows(self, value: Tensor) -> Tensor:
        """``[groups, members]``."""
        return value.permute(*self.kept, *self.dims).reshape(self.groups, self.members)

    def per_row(self, value: float | Tensor) -> float | Tensor:
        """A statistic, or a tensor that broadcasts to one, as ``[groups, 1]``; a number stays a number."""
        return value.expand(self.statistics).reshape(-1, 1) if isinstance(value, Tensor) else value

    def statistic(self, value: Tensor) -> Tensor:
        return value.reshape(self.statistics)
