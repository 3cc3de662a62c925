"""The certified search for a center over several processes: one collective per sweep, the same decisions everywhere.

Every process sweeps its own values at the same points, and the sums are gathered. All processes then make the same
decisions, so none has to ask whether to go on. ``decide.py`` makes them, or csrc/decide.h where the compiled library is
available; the two agree to the last bit.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from ..cpu import library
from ..grouping import Axes
from ..torch.search import MAX_SWEEPS, begin
from ..torch.solver import Solution
from . import decide
from .moments import Moments
from .source import Points, Source


def search(
    source: Source, seen: Moments, groups: Axes, dtype: torch.dtype, sweeps: int | None, rescale: Tensor | None
) -> Solution:
    """The centers of all groups with 1 < φ < ∞ other than 2; for other groups the start.

    Args:
        source: the values of this process.
        seen: moments of all values, in units of ``rescale``; ``seen.phi`` are the exponents.
        groups: over processes.
        dtype: the computing dtype.
        sweeps: a fixed number of sweeps, with no decision that depends on the data.
        rescale: a factor to multiply the values by first; None for 1.
    """
    adaptive, wide = sweeps is None, dtype == torch.float64
    table = start(seen)
    advance = library.advance if _is_compiled(table) else decide.advance
    going_on = advance(table, None, 0, wide, adaptive)
    at = decide.from_table(table)
    q = _one_number(at.q) if adaptive else at.q
    for k in range(1, (MAX_SWEEPS if sweeps is None else sweeps) + 1):
        if adaptive and not going_on:
            break
        at = decide.from_table(table)
        here = source.sums(Points(at.y, at.up, at.down, at.active, rescale), q, adaptive, seen)
        going_on = advance(table, groups.gather(torch.stack(here)[..., 0]), k, wide, adaptive)
    found = decide.from_table(table)
    return Solution(found.center, found.bound, found.used.long())


def start(seen: Moments) -> Tensor:
    """Searches before their first sweep, as a table."""
    needed = (seen.phi != 2) & seen.mean.isfinite()
    return decide.to_table(begin(seen.phi, seen.lowest, seen.highest, seen.mass, seen.lightest, seen.start, needed))


def _is_compiled(table: Tensor) -> bool:
    return table.is_cpu and os.environ.get("GEONORM_BACKEND") != "torch" and not isinstance(library.load(), str)


def _one_number(q: Tensor) -> float | Tensor:
    """The exponent as a number where all groups share it: powers of it may be cheaper."""
    if not q.numel():
        return 1.0
    first = float(q[0])
    return first if bool((q == first).all()) else q
