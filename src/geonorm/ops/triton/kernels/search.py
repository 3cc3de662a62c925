"""The certified search for the center of a group: csrc/search.h for a vector of groups, one entry each.

See ``ops/torch/search.py`` for the mathematics. The sums P, N, W₊ and W₋ are in units of ``unit``; arithmetic per group
is in float64, arithmetic per value in float32.
"""

import triton
import triton.language as tl

from .groups import read, split_in_two

EPS = tl.constexpr(1.1920928955078125e-07)  # of float32
TINY = tl.constexpr(1e-30)  # smallest |x − y| in units: keeps Σ|r|^(q−1) finite in float32
SMALLEST_UNIT = tl.constexpr(1e-36)  # so that its inverse is finite in float32
MAX_SWEEPS = tl.constexpr(200)


@triton.jit
def power(a, e, ROOT: tl.constexpr):
    """a^e for a > 0. ROOT: e is −½."""
    if ROOT:
        found = tl.rsqrt(a)
    else:
        found = tl.exp2(tl.log2(a) * e)
    return found


@triton.jit
def wide_power(a, e):
    """a^e in float64, 0 for a = 0."""
    return tl.where(a > 0, tl.exp2(tl.log2(tl.where(a > 0, a, 1.0)) * e), 0.0)


@triton.jit
def offsets_from(v, mask, y, unit, q, ROOT: tl.constexpr):
    """(x − y)/unit, 0 outside of the mask, and its size to the power q − 1."""
    head, rest = split_in_two(y)
    r = ((v - head[None, :]) - rest[None, :]) * (1.0 / unit.to(tl.float32))[None, :]
    r = tl.where(mask, r, 0.0)
    return r, power(tl.maximum(tl.abs(r), TINY), (q - 1)[None, :], ROOT)


@triton.jit
def evaluate(above, below, slope_up, slope_down, unit, q, m):
    """Direction to the center, its largest possible distance from y, and the Newton step on P^(1/q) − N^(1/q)."""
    q = q.to(tl.float64)
    share = tl.where(q < 1, 2.0 / m, 1.0)
    up, down = unit * wide_power(above * share, 1 / q), unit * wide_power(below * share, 1 / q)
    kappa = (2 * q + 16) * EPS
    difference = above - below
    sure = tl.abs(difference) > kappa * (above + below)
    direction = tl.where(sure, tl.where(difference > 0, 1.0, -1.0), 0.0)
    # 1 / mean distance of each side; 0 for a side without values
    near_up = tl.where(above > 0, slope_up / (unit * tl.where(above > 0, above, 1.0)), 0.0)
    near_down = tl.where(below > 0, slope_down / (unit * tl.where(below > 0, below, 1.0)), 0.0)
    grows_up, grows_down = up * near_up, down * near_down
    unsure = tl.minimum(grows_up, grows_down)  # on whichever side the center lies
    growing = tl.where(sure, tl.where(difference > 0, grows_down, grows_up), unsure)
    error = (tl.abs(up - down) + kappa / q * (up + down)) / tl.where(q < 1, 2.0, 1 + growing) + unit * (2 * TINY)
    upward = difference > 0
    larger = tl.where(upward, up, down)
    damp = tl.where(upward, down, up) / tl.where(larger > 0, larger, 1.0)
    inverse = tl.where(upward, near_up + damp * near_down, damp * near_up + near_down)
    step = tl.where(upward, 1 - damp, damp - 1) / tl.where(inverse > 0, inverse, 1.0)
    invalid = difference * 0  # NaN and Inf must not be lost in comparisons
    return direction + invalid, error + invalid, step + invalid


@triton.jit
def step_by_nearest(above, below, slope, tied, nearest, tied_above, tied_below, q):
    """Newton with the value nearest to y treated exactly and the others linearised (φ < 2), in units."""
    q = q.to(tl.float64)
    at_y = tied > 0
    sign = tl.where(tied_above > 0, 1.0, -1.0)
    k = tl.maximum(tl.where(at_y, tied, tl.where(tied_above > 0, tied_above, tied_below)), 1.0)
    t = tl.where(at_y, 0.0, nearest)
    own = tl.where(at_y, 0.0, wide_power(t, q - 1) * k)
    others = q * tl.maximum(slope - own, 0.0)
    c = above - below - sign * own * t - others * sign * t
    goal = tl.abs(c)
    u = tl.minimum(goal / k, wide_power(goal / tl.maximum(others, 1e-300), q))
    for _ in range(6):
        rest = others * wide_power(u, 1 / q - 1)
        u = tl.maximum(u - (k * u + rest * u - goal) / (k + rest / q), 0.0)
    return sign * t + tl.where(c > 0, 1.0, -1.0) * wide_power(u, 1 / q)


@triton.jit
def add_up(
    x, members, held, held_mask, g, y, unit, head, rest, q, m, G, GI: tl.constexpr, JI: tl.constexpr,
    g_outer, g_inner, j_outer, j_inner,
    HELD: tl.constexpr, FOLDED: tl.constexpr, ROOT: tl.constexpr, BIG: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """P, N, W₊, W₋ and the smallest |x − y| of whole groups. HELD: their values are in registers."""
    above, below, slope_up, slope_down = y * 0, y * 0, y * 0, y * 0
    closest = y * 0 + float("inf")
    for first in range(0, m, BM):
        if HELD:
            v, mask = held, held_mask
        else:
            j = first + tl.arange(0, BM)
            v, _, mask = read(
                x, members, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, False, BIG
            )
        r, w = offsets_from(v, mask, y, unit, q, ROOT)
        above += tl.sum(tl.maximum(r, 0.0) * w, axis=0).to(tl.float64)
        below += tl.sum(tl.maximum(-r, 0.0) * w, axis=0).to(tl.float64)
        slope_up += tl.sum(tl.where(r > 0, w, 0.0), axis=0).to(tl.float64)
        slope_down += tl.sum(tl.where(r < 0, w, 0.0), axis=0).to(tl.float64)
        closest = tl.minimum(closest, tl.min(tl.where(mask, tl.abs(r), float("inf")), axis=0).to(tl.float64))
    return above, below, slope_up, slope_down, closest


@triton.jit
def neighbours(
    x, members, held, held_mask, g, y, unit, head, rest, m, G, GI: tl.constexpr, JI: tl.constexpr,
    g_outer, g_inner, j_outer, j_inner,
    HELD: tl.constexpr, FOLDED: tl.constexpr, BIG: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """How many values lie at y, the distance of the nearest other value in units, and how many lie there."""
    tied, tied_above, tied_below = y * 0, y * 0, y * 0
    nearest = (y * 0).to(tl.float32) + float("inf")
    q = nearest * 0 + 1
    for repeat in range(2):
        for first in range(0, m, BM):
            if HELD:
                v, mask = held, held_mask
            else:
                j = first + tl.arange(0, BM)
                v, _, mask = read(
                    x, members, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, False, BIG
                )
            r, _ = offsets_from(v, mask, y, unit, q, False)
            if repeat == 0:
                tied += tl.sum(tl.where(mask & (r == 0), 1.0, 0.0), axis=0).to(tl.float64)
                away = tl.where(mask & (r != 0), tl.abs(r), float("inf"))
                nearest = tl.minimum(nearest, tl.min(away, axis=0))
            else:
                tied_above += tl.sum(tl.where(mask & (r == nearest[None, :]), 1.0, 0.0), axis=0).to(tl.float64)
                tied_below += tl.sum(tl.where(mask & (r == -nearest[None, :]), 1.0, 0.0), axis=0).to(tl.float64)
    return tied, nearest.to(tl.float64), tied_above, tied_below


@triton.jit
def search(
    x, members, held, held_mask, g, low, high, start, head, rest, q, m, G, GI: tl.constexpr, JI: tl.constexpr,
    g_outer, g_inner, j_outer, j_inner,
    HELD: tl.constexpr, FOLDED: tl.constexpr, ROOT: tl.constexpr, BIG: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Center, bound on its error and number of sweeps of whole groups, down to the rounding level.

    ``low``, ``high``: the extremes. Groups with NaN or Inf get NaN.
    """
    order = q.to(tl.float64)
    unit = tl.maximum(high - low, SMALLEST_UNIT)
    y = tl.minimum(tl.maximum(start, low), high) + (high - low + start) * 0
    lo, hi = low, high
    width_0, width_1, width_2 = high - low, high - low, high - low
    bound, sweeps = y * 0, y * 0
    active = tl.where((high > low) & (y == y), 1.0, 0.0)
    k = 0
    while (k < MAX_SWEEPS) & (tl.max(active, axis=0) > 0):
        y_head, y_rest = split_in_two(y)
        y = y_head.to(tl.float64) + y_rest.to(tl.float64)
        above, below, slope_up, slope_down, closest = add_up(
            x, members, held, held_mask, g, y, unit, head, rest, q, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner,
            HELD, FOLDED, ROOT, BIG, BM,
        )  # fmt: skip
        direction, error, step = evaluate(above, below, slope_up, slope_down, unit, q, m)
        distance, slope = closest * unit, order * (slope_up + slope_down)
        slope = tl.where(slope > 0, slope, 1.0)
        noise = (2 * order + 16) * EPS * (above + below) * unit / slope
        curve = 2 * tl.abs(1 - order) * error * error
        settled = (distance >= 2 * error) & (curve <= noise * distance)
        newton = unit * (above - below) / slope
        rest_after = curve / tl.where(distance > 0, distance, 1.0) + noise + (2 * order + 16) * EPS * tl.abs(newton)
        step = tl.where(settled, newton, step)
        wants = (active > 0) & (settled == 0) & (order < 1) & ((closest == 0) | (k >= 5))
        if tl.max(wants.to(tl.int32), axis=0) > 0:
            tied, nearest, tied_above, tied_below = neighbours(
                x, members, held, held_mask, g, y, unit, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner,
                HELD, FOLDED, BIG, BM,
            )  # fmt: skip
            special = step_by_nearest(above, below, slope_up + slope_down, tied, nearest, tied_above, tied_below, q)
            step = tl.where(wants, special * unit, step)
        grain = 1e-14 * unit
        new_lo = tl.maximum(lo, tl.where(direction > 0, y, y - error))
        new_hi = tl.minimum(hi, tl.where(direction < 0, y, y + error))
        middle = 0.5 * (new_lo + new_hi)
        new_lo, new_hi = tl.minimum(new_lo, middle), tl.maximum(new_hi, middle)
        width, least = new_hi - new_lo, 4.5e-16 * tl.abs(y) + grain
        crawls = (settled == 0) & (tl.abs(step) < least) & (direction != 0)
        following = y + tl.where(crawls, direction * least, step)
        usable = (following >= new_lo) & (following <= new_hi)
        usable = usable & ((k < 3) | (width <= 0.5 * width_0) | (direction == 0) | settled)
        following = tl.where(usable, following, middle)
        narrow = width <= 2 * least  # the center is used in float64: an offset must not end the search earlier
        on = active > 0
        new_bound = tl.maximum(new_hi - following, following - new_lo)
        new_bound = tl.where(settled & usable, tl.minimum(new_bound, rest_after), new_bound) + unit * (2 * TINY)
        sweeps += active
        done = settled | (direction == 0) | narrow | (following == y)
        bound = tl.where(on, new_bound, bound)
        lo, hi = tl.where(on, new_lo, lo), tl.where(on, new_hi, hi)
        width_0, width_1, width_2 = width_1, width_2, tl.where(on, width, width_2)
        y = tl.where(on, following, y)
        active = tl.where(on & (done == 0), 1.0, 0.0)
        k += 1
    return y, bound, sweeps
