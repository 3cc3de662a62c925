"""The certified search for a center over several processes: one collective per sweep, the same decisions everywhere.

Every process sweeps its own values at the same points, the sums are gathered, and each makes the same of them, so that
nobody has to be asked whether to go on: by ``decide.py`` or, where it is there, by the compiled csrc/decide.h. The two
are the same to the last bit.
"""

from __future__ import annotations

import math
import os

import torch
from torch import Tensor

from ..cpu import library
from ..grouping import Axes
from ..torch.solver import MAX_SWEEPS, Solution
from . import decide
from .decide import COLUMNS
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
    rows = start(seen)
    advance = library.advance if _is_compiled(rows) else decide.advance
    going_on = advance(rows, None, 0, wide, adaptive)
    exponents = rows[:, decide.Q, None]
    q = _one_number(exponents) if adaptive else exponents
    for k in range(1, (MAX_SWEEPS if sweeps is None else sweeps) + 1):
        if adaptive and not going_on:
            break
        y, up, down, active = (rows[:, column, None] for column in (decide.Y, decide.UP, decide.DOWN, decide.ACTIVE))
        here = source.sums(Points(y, up, down, active > 0, rescale), q, adaptive, seen)
        going_on = advance(rows, groups.gather(torch.stack(here)[..., 0]), k, wide, adaptive)
    center, bound, used = (rows[:, column, None] for column in (decide.FOUND, decide.WITHIN, decide.USED))
    return Solution(center, bound, used.long())


def start(seen: Moments) -> Tensor:
    """Searches that have not begun."""
    q = torch.where(seen.phi >= 1, seen.phi - 1, math.nan)  # where nothing could check φ, a wrong one must show
    lo, hi = seen.lowest, seen.highest
    span = hi - lo
    active = span.isfinite() & (span > 0) & q.isfinite() & (q > 0) & (q != 1) & seen.mean.isfinite()
    y = torch.where(span.isfinite() & ~q.isnan(), seen.start, math.nan).clamp(lo, hi)
    rows = torch.zeros(len(q), len(COLUMNS), dtype=torch.float64, device=q.device)
    bound = torch.where(y.isfinite(), 0.0, math.nan)
    begin = (q, lo, hi, seen.mass, seen.lightest, lo, hi, y, y, bound, span, span, span)
    rows[:, : len(begin)] = torch.cat(begin, 1)
    rows[:, decide.ACTIVE] = active[:, 0].double()
    return rows


def _is_compiled(rows: Tensor) -> bool:
    return rows.is_cpu and os.environ.get("GEONORM_BACKEND") != "torch" and not isinstance(library.load(), str)


def _one_number(q: Tensor) -> float | Tensor:
    """Where all groups share one exponent, powers of it may have a short form."""
    if not q.numel():
        return 1.0
    first = float(q[0])
    return first if bool((q == first).all()) else q
