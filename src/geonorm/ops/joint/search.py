"""The certified search for a center over several processes: one collective per sweep, the same decisions everywhere.

Every process sweeps its own values at the same points, the sums are gathered, and each makes the same of them, so that
nobody has to be asked whether to go on: by ``decide.py`` or, where it is there, by the compiled csrc/decide.h. The two
are the same to the last bit.
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
    """The centers of all groups with 1 < φ < ∞ other than 2; of others the start.

    Args:
        source: the values here.
        seen: moments of all values, in units of ``rescale``; ``seen.phi`` says what is looked for.
        groups: over processes.
        dtype: computing.
        sweeps: a fixed number of them, with no decision that depends on the data.
        rescale: what the values have to be multiplied by before anything else; None for 1.
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
    """Searches that have not begun, as a table."""
    needed = (seen.phi != 2) & seen.mean.isfinite()
    return decide.to_table(begin(seen.phi, seen.lowest, seen.highest, seen.mass, seen.lightest, seen.start, needed))


def _is_compiled(table: Tensor) -> bool:
    return table.is_cpu and os.environ.get("GEONORM_BACKEND") != "torch" and not isinstance(library.load(), str)


def _one_number(q: Tensor) -> float | Tensor:
    """Where all groups share one exponent, powers of it may have a short form."""
    if not q.numel():
        return 1.0
    first = float(q[0])
    return first if bool((q == first).all()) else q
