"""Large groups: launches over parts of the groups. Each first adds up what the one before it left, so that no program
depends on another of its launch.

    start    a subsample of every group, in registers: where to begin, and a unit
    sweep    the sums at the point so far; the first also takes the moments; groups that are certified return at once
    finish   per group: the result; a group without a certificate is searched to its end by one program
    settle   the saved rows
    output   y
"""

import triton
import triton.language as tl

from .groups import first_member, keep, parameter, read, take
from .measure import measure
from .search import EPS, SMALLEST_UNIT, evaluate, offsets_from
from .small import affine
from .state import CENTER, RHO, get, removed_of, settle

# Rows of the state of a search, float64 [rows, groups]; its double is written while it is read.
Y, LO, HI, UNIT, OF_MEAN, OF_VAR, LOW, HIGH, ACTIVE, OF_SWEEPS = [tl.constexpr(i) for i in range(10)]
STATE_ROWS = 10
# Rows of the sums, float64 [rows, groups, parts].
P, N, SLOPE_UP, SLOPE_DOWN, FIRST, SECOND, LEAST_VALUE, MOST_VALUE = [tl.constexpr(i) for i in range(8)]
SUM_ROWS = 8
# Rows of what was found, float64 [rows, groups].
F_CENTER, F_BOUND, F_SWEEPS, F_MEAN, F_VAR, F_LOW, F_HIGH = [tl.constexpr(i) for i in range(7)]
FOUND_ROWS = 7
NOT_REPRESENTATIVE = tl.constexpr(100.0)  # (mean − start)² over the variance from which float32 loses digits


@triton.jit
def fold_at(about, g, G, FOLDED: tl.constexpr):
    """α·c − b of the groups, whose distances |x − ·| are measured; zeros unless FOLDED. ``about``: float32 [2, G]."""
    head, rest = tl.zeros(g.shape, tl.float32), tl.zeros(g.shape, tl.float32)
    if FOLDED:
        head, rest = take(about, 0, g, G, 0.0), take(about, 1, g, G, 0.0)
    return head, rest


@triton.jit
def start_kernel(
    x, phi, q_number, phi_count, about, state, count, run_stride,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    FOLDED: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr, BIG: tl.constexpr, RUN: tl.constexpr,
    STEPS: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """``count`` values in runs of RUN neighbours, one run every ``run_stride``: mean, deviation, then Newton steps."""
    g, i = tl.program_id(0) * BG + tl.arange(0, BG), tl.arange(0, BM)
    head, rest = fold_at(about, g, G, FOLDED)
    j = (i // RUN) * run_stride + i % RUN
    v, _, mask = read(x, None, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, False, BIG)
    mask = mask & (i < count)[:, None]
    tallest = tl.maximum(tl.max(tl.where(mask, tl.abs(v), 0.0), axis=0), SMALLEST_UNIT)
    mean = tl.sum(tl.where(mask, v * (1.0 / tallest)[None, :], 0.0), axis=0) / count * tallest
    d = tl.where(mask, v - mean[None, :], 0.0)
    widest = tl.max(tl.abs(d), axis=0)
    scaled = d * (1.0 / tl.maximum(widest, SMALLEST_UNIT))[None, :]
    unit = tl.sqrt(tl.sum(scaled * scaled, axis=0) / count) * widest
    unit = tl.where(unit > SMALLEST_UNIT, unit, tallest).to(tl.float64)  # equal values, or NaN
    y = mean.to(tl.float64) * 0
    if POWER:
        q = parameter(phi, q_number, g, phi_count, G)
        for _ in range(STEPS):
            r, w = offsets_from(d, mask, y, unit, q, ROOT)
            above = tl.sum(tl.maximum(r, 0.0) * w, axis=0).to(tl.float64)
            below = tl.sum(tl.maximum(-r, 0.0) * w, axis=0).to(tl.float64)
            slope_up = tl.sum(tl.where(r > 0, w, 0.0), axis=0).to(tl.float64)
            slope_down = tl.sum(tl.where(r < 0, w, 0.0), axis=0).to(tl.float64)
            _, _, step = evaluate(above, below, slope_up, slope_down, unit, q, count)
            y += step
    keep(state, Y, g, G, mean.to(tl.float64) + y)
    keep(state, UNIT, g, G, unit)


@triton.jit
def total(sums, row, g, G, PARTS: tl.constexpr, BP: tl.constexpr):
    """The parts of a row of sums, added up."""
    i = tl.arange(0, BP)
    at = sums + (G * row + g[None, :]) * PARTS + i[:, None]
    return tl.sum(tl.load(at, mask=(i < PARTS)[:, None] & (g < G)[None, :], other=0.0), axis=0)


@triton.jit
def digest(
    state, sums, q, g, G, m, tolerance,
    FIRST_SWEEP: tl.constexpr, FOLDED: tl.constexpr, POWER: tl.constexpr, SPREAD_KIND: tl.constexpr,
    PARTS: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """The state after the sweep that left ``sums``."""
    y, unit = take(state, Y, g, G, 0.0), take(state, UNIT, g, G, 1.0)
    if FIRST_SWEEP:
        i = tl.arange(0, BP)
        at, inside = sums + g[None, :] * PARTS + i[:, None], (i < PARTS)[:, None] & (g < G)[None, :]
        low = tl.min(tl.load(at + G * PARTS * LEAST_VALUE, mask=inside, other=float("inf")), axis=0)
        high = tl.max(tl.load(at + G * PARTS * MOST_VALUE, mask=inside, other=float("-inf")), axis=0)
        shift = total(sums, FIRST, g, G, PARTS, BP) / m
        square = total(sums, SECOND, g, G, PARTS, BP) / m
        var = tl.maximum(square - shift * shift, 0.0) + shift * 0
        mean, var, lost = y + shift * unit, var * unit * unit, shift * shift > var * NOT_REPRESENTATIVE
        lo, hi, active, sweeps = low, high, y * 0 + 1.0, y * 0
        active = tl.where(lost | (mean + var != mean + var), 2.0, active)  # 2: its moments must be taken again
    else:
        lo, hi = take(state, LO, g, G, 0.0), take(state, HI, g, G, 0.0)
        low, high = take(state, LOW, g, G, 0.0), take(state, HIGH, g, G, 0.0)
        mean, var = take(state, OF_MEAN, g, G, 0.0), take(state, OF_VAR, g, G, 0.0)
        active, sweeps = take(state, ACTIVE, g, G, 0.0), take(state, OF_SWEEPS, g, G, 0.0)
    if POWER:
        above, below = total(sums, P, g, G, PARTS, BP), total(sums, N, g, G, PARTS, BP)
        slope_up, slope_down = total(sums, SLOPE_UP, g, G, PARTS, BP), total(sums, SLOPE_DOWN, g, G, PARTS, BP)
        direction, error, step = evaluate(above, below, slope_up, slope_down, unit, q, m)
        on = active > 0  # else the sums may never have been written
        lo = tl.where(on, tl.maximum(lo, tl.where(direction > 0, y, y - error)), lo)
        hi = tl.where(on, tl.minimum(hi, tl.where(direction < 0, y, y + error)), hi)
        following = tl.minimum(tl.maximum(y + step, lo), hi)
        scale = tl.sqrt(var)
        if FOLDED:  # the spread itself must be accurate
            scale = following
        elif SPREAD_KIND == 4:  # a robust spread may be far smaller than the deviation
            order = q.to(tl.float64)
            size = tl.maximum((above + below) / m, 1e-300)
            scale = tl.minimum(scale, unit * tl.exp2(tl.log2(size) / order))
        y = tl.where(on, following, y)
        certain = (error <= tolerance * scale) | (direction == 0)
        active = tl.where((active == 1.0) & certain, 0.0, active)
        sweeps += tl.where(on, 1.0, 0.0)
    else:
        y = mean
        active = tl.where(active == 1.0, 0.0, active)
    return y, lo, hi, unit, mean, var, low, high, active, sweeps


@triton.jit
def sweep_kernel(
    x, phi, q_number, phi_count, about, state_in, sums_in, state_out, sums_out, tolerance,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    AT: tl.constexpr, FOLDED: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr, SPREAD_KIND: tl.constexpr,
    EVEN: tl.constexpr, BIG: tl.constexpr, PARTS: tl.constexpr, BP: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """AT: how many sweeps came before. No chain of additions in float32 is longer than INNER."""
    g, part = tl.program_id(0) * BG + tl.arange(0, BG), tl.program_id(1)
    q = parameter(phi, q_number, g, phi_count, G)
    if AT == 0:
        y, unit = take(state_in, Y, g, G, 0.0), take(state_in, UNIT, g, G, 1.0)
    else:
        y, lo, hi, unit, mean, var, low, high, active, sweeps = digest(
            state_in, sums_in, q, g, G, m, tolerance, AT == 1, FOLDED, POWER, SPREAD_KIND, PARTS, BP
        )
        if part == 0:
            keep(state_out, Y, g, G, y)
            keep(state_out, LO, g, G, lo)
            keep(state_out, HI, g, G, hi)
            keep(state_out, UNIT, g, G, unit)
            keep(state_out, OF_MEAN, g, G, mean)
            keep(state_out, OF_VAR, g, G, var)
            keep(state_out, LOW, g, G, low)
            keep(state_out, HIGH, g, G, high)
            keep(state_out, ACTIVE, g, G, active)
            keep(state_out, OF_SWEEPS, g, G, sweeps)
        if tl.max(tl.where(g < G, active, 0.0), axis=0) == 0:
            return
    head, rest = fold_at(about, g, G, FOLDED)
    nothing = tl.zeros([BG], tl.float64)
    above, below, slope_up, slope_down, first, second = nothing, nothing, nothing, nothing, nothing, nothing
    least, most = tl.zeros([BG], tl.float32) + float("inf"), tl.zeros([BG], tl.float32) - float("inf")
    start = first_member(part, OUTER * INNER * BM, BIG)
    for outer in range(OUTER):
        zero = tl.zeros([BM, BG], tl.float32)
        a_tile, b_tile, u_tile, d_tile, f_tile, s_tile = zero, zero, zero, zero, zero, zero
        smallest, largest = zero + float("inf"), zero - float("inf")
        for inner in range(INNER):
            j = start + (outer * INNER + inner) * BM + tl.arange(0, BM)
            v, _, mask = read(
                x, None, g, j, head, rest, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, FOLDED, EVEN, BIG
            )
            r, w = offsets_from(v, mask, y, unit, q, ROOT)
            if POWER:
                a_tile += tl.maximum(r, 0.0) * w
                b_tile += tl.maximum(-r, 0.0) * w
                u_tile += tl.where(r > 0, w, 0.0)
                d_tile += tl.where(r < 0, w, 0.0)
            if AT == 0:
                f_tile += r
                s_tile += r * r
                smallest = tl.minimum(smallest, tl.where(mask, v, float("inf")))
                largest = tl.maximum(largest, tl.where(mask, v, float("-inf")))
        if POWER:
            above += tl.sum(a_tile, axis=0).to(tl.float64)
            below += tl.sum(b_tile, axis=0).to(tl.float64)
            slope_up += tl.sum(u_tile, axis=0).to(tl.float64)
            slope_down += tl.sum(d_tile, axis=0).to(tl.float64)
        if AT == 0:
            first += tl.sum(f_tile, axis=0).to(tl.float64)
            second += tl.sum(s_tile, axis=0).to(tl.float64)
            least, most = tl.minimum(least, tl.min(smallest, axis=0)), tl.maximum(most, tl.max(largest, axis=0))
    here, row, inside = sums_out + g * PARTS + part, G * PARTS, g < G
    if POWER:
        tl.store(here + row * P, above, mask=inside)
        tl.store(here + row * N, below, mask=inside)
        tl.store(here + row * SLOPE_UP, slope_up, mask=inside)
        tl.store(here + row * SLOPE_DOWN, slope_down, mask=inside)
    if AT == 0:
        tl.store(here + row * FIRST, first, mask=inside)
        tl.store(here + row * SECOND, second, mask=inside)
        tl.store(here + row * LEAST_VALUE, least.to(tl.float64), mask=inside)
        tl.store(here + row * MOST_VALUE, most.to(tl.float64), mask=inside)


@triton.jit
def finish_kernel(
    x, phi, q_number, phi_count, about, state, sums, found, tolerance,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    AT: tl.constexpr, FOLDED: tl.constexpr, CENTERED: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr,
    SPREAD_KIND: tl.constexpr, BIG: tl.constexpr, PARTS: tl.constexpr, BP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """What was found about one group. Where the certificate fails, or float32 lost the moments: the whole search."""
    g = tl.program_id(0) + tl.arange(0, 1)
    q = parameter(phi, q_number, g, phi_count, G)
    y, lo, hi, _, mean, var, low, high, active, sweeps = digest(
        state, sums, q, g, G, m, tolerance, AT == 1, FOLDED, POWER, SPREAD_KIND, PARTS, BP
    )
    bound = tl.maximum(hi - y, y - lo)
    if not POWER:
        bound = tl.sqrt(var) * (32 * EPS)
    if tl.max(active, axis=0) > 0:
        head, rest = fold_at(about, g, G, FOLDED)
        unused = tl.zeros([BM, 1], tl.float32)
        y, bound, more, mean, var, low, high = measure(
            x, None, unused, unused > 0, g, head, rest, q, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner,
            False, FOLDED, POWER, ROOT, BIG, BM,
        )  # fmt: skip
        sweeps += more
    if not CENTERED:
        y, bound = mean * 0, bound * 0
    keep(found, F_CENTER, g, G, y + mean * 0)
    keep(found, F_BOUND, g, G, bound)
    keep(found, F_SWEEPS, g, G, sweeps)
    keep(found, F_MEAN, g, G, mean)
    keep(found, F_VAR, g, G, var)
    keep(found, F_LOW, g, G, low)
    keep(found, F_HIGH, g, G, high)


@triton.jit
def about_kernel(found, about, alpha, alpha_number, alpha_count, shift, shift_count, G, BG: tl.constexpr):
    """α·c − b of every group, float32 [2, G]: the second search is for the center of |x − ·|."""
    g = tl.program_id(0) * BG + tl.arange(0, BG)
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    head, rest = removed_of(take(found, F_CENTER, g, G, 0.0), al, sh)
    keep(about, 0, g, G, head)
    keep(about, 1, g, G, rest)


@triton.jit
def settle_kernel(
    found, found_2, mass, rows, alpha, alpha_number, alpha_count, shift, shift_count, m,
    eps, grad_floor, factor, floor, G, SPREAD_KIND: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """The saved rows. ``mass``: float64 number of values in every group; None: m."""
    g = tl.program_id(0) * BG + tl.arange(0, BG)
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    c, bound, sweeps = (
        take(found, F_CENTER, g, G, 0.0),
        take(found, F_BOUND, g, G, 0.0),
        take(found, F_SWEEPS, g, G, 0.0),
    )
    mean, var = take(found, F_MEAN, g, G, 0.0), take(found, F_VAR, g, G, 0.0)
    low, high = take(found, F_LOW, g, G, 0.0), take(found, F_HIGH, g, G, 0.0)
    c2, mean2, low2, high2 = c * 0, c * 0, c * 0, c * 0
    if SPREAD_KIND == 2 or SPREAD_KIND == 4:
        c2, mean2 = take(found_2, F_CENTER, g, G, 0.0), take(found_2, F_MEAN, g, G, 0.0)
        low2, high2 = take(found_2, F_LOW, g, G, 0.0), take(found_2, F_HIGH, g, G, 0.0)
    if mass is None:
        values = tl.zeros([BG], tl.float64) + m
    else:
        values = tl.load(mass + g, mask=g < G, other=1.0)
    settle(
        rows, g, G, c, bound, sweeps, mean, var, low, high, values, c2, mean2, high2, low2, al, sh,
        eps, grad_floor, factor, floor, SPREAD_KIND,
    )  # fmt: skip


@triton.jit
def output_kernel(
    x, y, rows, alpha, alpha_number, alpha_count, shift, shift_count, gamma, beta, factors, joint,
    positions: tl.constexpr,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    PG: tl.constexpr, JD: tl.constexpr, JM: tl.constexpr, EVEN: tl.constexpr, BIG: tl.constexpr,
    TILES: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """y = γρz + β. Of a guarded batch: ``factors`` of the samples and ``joint`` center of the channels."""
    g, part = tl.program_id(0) * BG + tl.arange(0, BG), tl.program_id(1)
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    head, rest = removed_of(get(rows, g, G, CENTER, 0.0), al, sh)
    rho = get(rows, g, G, RHO, 0.0).to(tl.float32)
    zero = tl.zeros([BG], tl.float32)
    start = first_member(part, TILES * BM, BIG)
    for tile in range(TILES):
        j = start + tile * BM + tl.arange(0, BM)
        v, at, mask = read(
            x, None, g, j, zero, zero, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, EVEN, BIG
        )
        z = deviation(v, g, j, m, G, head, rest, factors, joint, positions)
        scale = affine(gamma, g, j, G, m, PG, JD, JM, 1.0) * rho[None, :]
        z = (z * scale + affine(beta, g, j, G, m, PG, JD, JM, 0.0)).to(y.dtype.element_ty)
        if EVEN:
            tl.store(y + at, z)
        else:
            tl.store(y + at, z, mask=mask)


@triton.jit
def deviation(v, g, j, m, G, head, rest, factors, joint, positions: tl.constexpr):
    """z = x − α·c + b. Of a guarded batch after the pull: member j belongs to sample j // positions."""
    z = (v - head[None, :]) - rest[None, :]
    if factors is not None:
        f = tl.load(factors + j // positions, mask=j < m, other=1.0)[:, None]
        center = tl.load(joint + g, mask=g < G, other=0.0)
        beyond = (center - head) - rest
        z = tl.where(f == 1.0, z, (v - center[None, :]) * f + beyond[None, :])
    return z
