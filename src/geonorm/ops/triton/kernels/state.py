"""The saved rows: 20 float64 columns per group, as ``ops/problem.py`` defines them."""

import triton
import triton.language as tl

from .groups import split_in_two
from .search import EPS, TINY

COLUMNS = tl.constexpr(20)
(
    CENTER, SPREAD, RHO, MEAN_Z, UNIT, LEAST, LOWER, UPPER, MIDDLE, UNIT_2,
    LEAST_2, LOWER_2, UPPER_2, FLOORED, MEAN, VAR, BOUND, SWEEPS, MASS, BY,
) = [tl.constexpr(i) for i in range(20)]  # fmt: skip
BY_TRITON = tl.constexpr(2.0)

NO_SPREAD = tl.constexpr(0)
RMS = tl.constexpr(1)
MEAN_ABS = tl.constexpr(2)
MAX_ABS = tl.constexpr(3)
ROBUST = tl.constexpr(4)


@triton.jit
def put(rows, g, G, column, value):
    """Store one column."""
    tl.store(rows + g.to(tl.int64) * COLUMNS + column, value.to(tl.float64), mask=g < G)


@triton.jit
def get(rows, g, G, column, other):
    """Load one column."""
    return tl.load(rows + g.to(tl.int64) * COLUMNS + column, mask=g < G, other=other)


@triton.jit
def removed_of(center, alpha, shift):
    """x − z = α·c − b, as a float32 and a remainder."""
    return split_in_two(alpha.to(tl.float64) * center - shift.to(tl.float64))


@triton.jit
def settle(
    rows, g, G, c, bound, sweeps, mean, var, low, high, mass, c2, mean2, high2, low2, alpha, shift,
    eps, grad_floor, factor, floor, SPREAD_KIND: tl.constexpr,
):  # fmt: skip
    """Store the rows from what was measured, the second part about |z|; return what the output needs.

    ``factor``, ``floor``: the robust spread is ``factor``·c₂, and at least ``floor``·mean|z|.
    """
    c = c + mean * 0  # a group with Inf has no center
    if SPREAD_KIND == 3:  # as float32 computes z: the largest |z| must be found again in backward, by torch too
        c = c.to(tl.float32).to(tl.float64)
    head, rest = removed_of(c, alpha, shift)
    mean_z = mean - head.to(tl.float64) - rest.to(tl.float64)
    floored = c * 0
    if SPREAD_KIND == 1:
        spread = tl.sqrt(var + mean_z * mean_z)
    elif SPREAD_KIND == 2:
        spread = mean2
    elif SPREAD_KIND == 3:
        top, bottom = (high.to(tl.float32) - head) - rest, (low.to(tl.float32) - head) - rest
        spread = tl.maximum(tl.abs(top), tl.abs(bottom)).to(tl.float64) + mean * 0
    elif SPREAD_KIND == 4:
        least = mean2 * floor
        floored = tl.where(least > factor * c2, 1.0, 0.0)
        spread = tl.maximum(factor * c2, least) + c2 * 0
    else:
        spread = c * 0 + 1.0
    rho = c * 0 + 1.0
    if SPREAD_KIND != 0:
        rho = 1.0 / tl.sqrt(spread * spread + eps)
    unit, unit2 = tl.maximum(high - c, c - low), tl.maximum(high2 - c2, c2 - low2)
    tallest = tl.maximum(tl.abs(low), tl.abs(high))
    least_r = tl.maximum(tallest * (4 * EPS), grad_floor * spread) / tl.where(unit > 0, unit, 1.0)
    least_2 = high2 * (4 * EPS) / tl.where(unit2 > 0, unit2, 1.0)
    put(rows, g, G, CENTER, c)
    put(rows, g, G, SPREAD, spread)
    put(rows, g, G, RHO, rho)
    put(rows, g, G, MEAN_Z, mean_z)
    put(rows, g, G, UNIT, unit)
    put(rows, g, G, LEAST, tl.maximum(least_r, TINY))
    put(rows, g, G, LOWER, c)
    put(rows, g, G, UPPER, c)
    put(rows, g, G, MIDDLE, c2)
    put(rows, g, G, UNIT_2, unit2)
    put(rows, g, G, LEAST_2, tl.maximum(least_2, TINY))
    put(rows, g, G, LOWER_2, c2)
    put(rows, g, G, UPPER_2, c2)
    put(rows, g, G, FLOORED, floored)
    put(rows, g, G, MEAN, mean)
    put(rows, g, G, VAR, var)
    put(rows, g, G, BOUND, bound + tl.abs(c) * EPS)
    put(rows, g, G, SWEEPS, sweeps)
    put(rows, g, G, MASS, mass)
    put(rows, g, G, BY, mass * 0 + BY_TRITON)
    return head, rest, rho.to(tl.float32)
