"""Moments, center and bound of whole groups by one program: for small groups, and to repair large ones."""

import triton
import triton.language as tl

from .groups import read
from .search import EPS, SMALLEST_UNIT, search


@triton.jit
def moments(
    x, members, held, held_mask, g, head, rest, m, G, GI: tl.constexpr, JI: tl.constexpr,
    g_outer, g_inner, j_outer, j_inner,
    HELD: tl.constexpr, FOLDED: tl.constexpr, BIG: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Mean, variance and extremes of whole groups, float64. Three passes: no sum or square overflows float32.

    The maximum of the hardware drops a NaN. The sums keep it.
    """
    lowest = tl.zeros(g.shape, tl.float32) + float("inf")
    highest = tl.zeros(g.shape, tl.float32) - float("inf")
    for first in range(0, m, BM):
        if HELD:
            v, mask = held, held_mask
        else:
            j = first + tl.arange(0, BM)
            v, _, mask = read(
                x, members, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, False, BIG
            )
        lowest = tl.minimum(lowest, tl.min(tl.where(mask, v, float("inf")), axis=0))
        highest = tl.maximum(highest, tl.max(tl.where(mask, v, float("-inf")), axis=0))
    low, high = lowest.to(tl.float64), highest.to(tl.float64)
    tallest = tl.maximum(tl.maximum(tl.abs(lowest), tl.abs(highest)), SMALLEST_UNIT)
    total = low * 0
    for first in range(0, m, BM):
        if HELD:
            v, mask = held, held_mask
        else:
            j = first + tl.arange(0, BM)
            v, _, mask = read(
                x, members, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, False, BIG
            )
        total += tl.sum(tl.where(mask, v * (1.0 / tallest)[None, :], 0.0), axis=0).to(tl.float64)
    rough = (total * tallest.to(tl.float64) / m).to(tl.float32)
    # Of equal values the rough mean may be off by some roundings, which must not be large in units.
    unit = tl.maximum((high - low).to(tl.float32), tl.maximum(tallest * EPS, SMALLEST_UNIT))
    first_moment, second_moment = low * 0, low * 0
    for first in range(0, m, BM):
        if HELD:
            v, mask = held, held_mask
        else:
            j = first + tl.arange(0, BM)
            v, _, mask = read(
                x, members, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, False, BIG
            )
        d = tl.where(mask, (v - rough[None, :]) * (1.0 / unit)[None, :], 0.0)
        first_moment += tl.sum(d, axis=0).to(tl.float64)
        second_moment += tl.sum(d * d, axis=0).to(tl.float64)
    shift, wide = first_moment / m, unit.to(tl.float64)
    var = tl.maximum(second_moment / m - shift * shift, 0.0) + shift * 0
    return rough.to(tl.float64) + shift * wide, var * wide * wide, low, high


@triton.jit
def measure(
    x, members, held, held_mask, g, head, rest, q, m, G, GI: tl.constexpr, JI: tl.constexpr,
    g_outer, g_inner, j_outer, j_inner,
    HELD: tl.constexpr, FOLDED: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr, BIG: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """Center, bound, sweeps, mean, variance and extremes of whole groups. Without POWER the center is the mean."""
    mean, var, low, high = moments(
        x, members, held, held_mask, g, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner,
        HELD, FOLDED, BIG, BM,
    )  # fmt: skip
    if POWER:
        y, bound, sweeps = search(
            x, members, held, held_mask, g, low, high, mean, head, rest, q, m, G, GI, JI,
            g_outer, g_inner, j_outer, j_inner, HELD, FOLDED, ROOT, BIG, BM,
        )  # fmt: skip
    else:
        y, bound, sweeps = mean, tl.sqrt(var) * (32 * EPS), mean * 0
    return y, bound, sweeps, mean, var, low, high
