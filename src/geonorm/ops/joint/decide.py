"""What several processes make alike of the sums of a sweep: the search of ``ops/torch/search.py`` on one table.

The arithmetic is that of ``arithmetic.py``, and sums are added in the order of ranks. csrc/decide.h is the same
operation by operation, to the last bit: a process without the compiled library may be among the others.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..torch import search
from ..torch.search import Searches, Sums
from .arithmetic import REPRODUCIBLE

COLUMNS = Searches._fields  # of the table, in this order: ``Column`` of csrc/decide.h
_FIRST, _LAST = COLUMNS.index("lo"), COLUMNS.index("active")  # what a sweep changes


def to_table(searches: Searches) -> Tensor:
    """``[groups, columns]``, from searches of shape ``[groups, 1]``."""
    return torch.cat([value.double() for value in searches], 1)


def from_table(table: Tensor) -> Searches:
    """The searches again; numbers are views."""
    found = Searches(*table[:, :, None].unbind(1))
    return found._replace(active=found.active > 0)


def advance(table: Tensor, parts: Tensor | None, k: int, wide: bool, adaptive: bool) -> bool:
    """Searches after their k-th sweep, in place; whether any goes on, which only adaptive ones may ask.

    Args:
        table: ``[groups, columns]``.
        parts: the sums of all processes, ``[processes, sums, groups]``; None for k = 0: searches find their places.
        k: how many sweeps there were.
        wide: computing in float64, not float32.
        adaptive: searches look at single values where that helps.
    """
    dtype = torch.float64 if wide else torch.float32
    if parts is not None:
        sums = functools.reduce(Sums.merge, [Sums(*part.unsqueeze(-1).unbind(0)) for part in parts])
        moved = search.advance(from_table(table), sums, k, torch.finfo(dtype).eps, adaptive, REPRODUCIBLE)
        table[:, _FIRST : _LAST + 1] = to_table(moved)[:, _FIRST : _LAST + 1]
    table.copy_(to_table(search.place(from_table(table), dtype)))
    return adaptive and bool(from_table(table).active.any())
