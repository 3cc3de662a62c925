"""The inputs of this process, processed by the compiled kernels where possible and by torch elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes
from ..problem import Inputs, Rule
from ..torch.norm import deviations
from .kernels import Kernels, KernelSource
from .layout import Layout
from .saved_rows import SavedRows
from .source import Source, TorchSource


class LocalInputs:
    """The inputs of this process, and the rows saved so far, which hold the center."""

    def __init__(
        self,
        of: Inputs,
        lay: Layout,
        groups: Axes,
        rule: Rule,
        rows: SavedRows,
        kernels: Kernels | None,
        can_read: bool,
    ) -> None:
        self.of, self.lay, self.groups, self.rule, self.rows = of, lay, groups, rule, rows
        self.kernels, self.can_read = kernels, can_read

    @cached_property
    def values(self) -> Tensor:
        """The values in the computing dtype; 0 where the weight is 0."""
        values = self.of.x.to(self.rows.dtype)
        return values if self.of.weight is None else torch.where(self.of.weight > 0, values, 0.0)

    @cached_property
    def weight(self) -> Tensor | None:
        return None if self.of.weight is None else self.lay.rows(self.of.weight)

    @cached_property
    def z(self) -> Tensor:
        center = self.lay.statistic(self.rows.column(problem.CENTER)).to(self.rows.dtype)
        return deviations(self.values, center, self.of.alpha, self.of.shift, self.groups, self.rule)

    @property
    def about(self) -> Tensor:
        """The deviations that the spread is computed from, a group per row."""
        return self.lay.rows(self.values if self.rule.scale_first else self.z)

    def source(self) -> Source:
        """The values."""
        return self._source(lambda: TorchSource(self.lay.rows(self.values), self.weight, self.can_read), False)

    def sizes(self) -> Source:
        """|z|."""
        return self._source(lambda: TorchSource(self.about.abs(), self.weight, self.can_read), True)

    def _source(self, on_torch: Callable[[], TorchSource], sizes: bool) -> Source:
        if self.kernels is None or self.kernels.refused:
            return on_torch()
        return KernelSource(self.kernels, on_torch, self.lay.members, sizes)

    def output(self) -> Tensor:
        """The output, once all saved rows are complete."""
        of = self.of
        if self.kernels is not None and not self.kernels.refused:
            self.rows.write(problem.BY, torch.full_like(self.rows.column(problem.BY), problem.BY_CPU))
            return self.kernels.write()
        y = self.z
        if self.rule.scaled:
            y = y * self.lay.statistic(self.rows.column(problem.RHO)).to(self.rows.dtype)
        y = y if of.gamma is None else y * of.gamma
        y = y if of.beta is None else y + of.beta
        y = y if of.weight is None else torch.where(of.weight > 0, y, 0.0)
        y = y.to(of.x.dtype)
        return y.clone() if y is of.x else y
