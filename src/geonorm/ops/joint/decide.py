"""The next step of a search, the same in all processes: ``ops/torch/search.py`` on one table.

It uses the arithmetic of ``arithmetic.py``, and adds sums in the order of ranks. csrc/decide.h does the same operations
with the same bits, because some of the processes may not have the compiled library.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..torch import search
from ..torch.search import Searches, Sums
from .arithmetic import REPRODUCIBLE

COLUMNS = Searches._fields  # of the table, in the order of ``Column`` of csrc/decide.h
_FIRST, _LAST = COLUMNS.index("lo"), COLUMNS.index("active")  # the columns that a sweep changes


def to_table(searches: Searches) -> Tensor:
    """``[groups, columns]``, from searches of shape ``[groups, 1]``."""
    return torch.cat([value.double() for value in searches], 1)


def from_table(table: Tensor) -> Searches:
    """The inverse of ``to_table``; the numbers are views of the table."""
    found = Searches(*table[:, :, None].unbind(1))
    return found._replace(active=found.active > 0)


def advance(table: Tensor, parts: Tensor | None, k: int, wide: bool, adaptive: bool) -> bool:
    """Update the searches after their k-th sweep, in place; returns whether any is still active, if adaptive.

    Args:
        table: ``[groups, columns]``.
        parts: the sums of all processes, ``[processes, sums, groups]``; None before the first sweep, for k = 0.
        k: the number of sweeps so far.
        wide: the computing dtype is float64, not float32.
        adaptive: Python may read the values, and a search may use the value nearest to its point.
    """
    dtype = torch.float64 if wide else torch.float32
    if parts is not None:
        sums = functools.reduce(Sums.merge, [Sums(*part.unsqueeze(-1).unbind(0)) for part in parts])
        moved = search.advance(from_table(table), sums, k, torch.finfo(dtype).eps, adaptive, REPRODUCIBLE)
        table[:, _FIRST : _LAST + 1] = to_table(moved)[:, _FIRST : _LAST + 1]
    table.copy_(to_table(search.set_sweep_point(from_table(table), dtype)))
    return adaptive and bool(from_table(table).active.any())
