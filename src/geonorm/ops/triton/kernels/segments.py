"""Segments, as the nodes of each graph of a batch: one launch each way.

A program has a block of features of one segment and reads its rows again for every sum: graphs are small, and stay in
the cache. Rows of the same segment need not be neighbours: ``members`` lists the rows by segment, those of segment i
from ``offsets[i]`` to ``offsets[i + 1]``. Group g of the saved rows is feature g % F of segment g // F.
"""

import triton
import triton.language as tl

from .backward import (
    BY_ALPHA,
    BY_BETA,
    BY_GAMMA,
    BY_PHI,
    BY_SHIFT,
    factors_of_dx,
    gradient_of_phi,
    gradient_of_values,
    log_moment,
    saved_of,
    sign,
    slope_of_center,
    slope_of_spread,
)
from .groups import parameter, read
from .measure import measure
from .state import BY, BY_TRITON, CENTER, COLUMNS, RHO, SPREAD, get, put, removed_of, settle


@triton.jit
def segment_of(offsets, F, G, BIG: tl.constexpr, BG: tl.constexpr):
    """Segment, features and groups of this program, the first of its rows in the list, and their number."""
    blocks = tl.cdiv(F, BG)
    segment = tl.program_id(0) // blocks
    f = (tl.program_id(0) % blocks) * BG + tl.arange(0, BG)
    if BIG:
        segment, f = segment.to(tl.int64), f.to(tl.int64)
    first = tl.load(offsets + segment)
    m = (tl.load(offsets + segment + 1) - first).to(tl.int32)
    return segment, f, tl.where(f < F, segment * F + f, G), first, m


@triton.jit
def fill(y, members, first, last, f, F, value, BIG: tl.constexpr, BM: tl.constexpr):
    """Write a value to the rows ``first`` to ``last`` of the list."""
    for start in range(0, (last - first).to(tl.int32), BM):
        j = start + tl.arange(0, BM)
        inside = j < last - first
        row = tl.load(members + first + j, mask=inside, other=0)
        if not BIG:
            row = row.to(tl.int32)
        here = row[:, None] * F + f[None, :]
        filling = tl.zeros(here.shape, tl.float32) + value
        tl.store(y + here, filling.to(y.dtype.element_ty), mask=inside[:, None] & (f < F)[None, :])


@triton.jit
def fill_strangers(y, offsets, members, segment, f, N, S, F, BIG: tl.constexpr, BM: tl.constexpr):
    """NaN in the rows of no segment, whose number is below 0 or too large: on a device nothing can be raised."""
    if segment == 0:
        fill(y, members, tl.zeros([], tl.int64), tl.load(offsets), f, F, float("nan"), BIG, BM)
    if segment == S - 1:
        fill(y, members, tl.load(offsets + S), tl.zeros([], tl.int64) + N, f, F, float("nan"), BIG, BM)


@triton.jit
def segments_kernel(
    x, y, rows, offsets, members, phi, q_number, phi_count, alpha, alpha_number, alpha_count, shift, shift_count,
    gamma, beta, eps, grad_floor, q2_number, factor, floor, N, S, F, G, PG: tl.constexpr,
    CENTERED: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr, ROOT_2: tl.constexpr, SPREAD_KIND: tl.constexpr,
    BIG: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """Rows and output. ``y`` may be None: then only the saved rows are written."""
    segment, f, g, first, m = segment_of(offsets, F, G, BIG, BG)
    if y is not None:
        fill_strangers(y, offsets, members, segment, f, N, S, F, BIG, BM)
    if m == 0:
        for column in range(COLUMNS):
            put(rows, g, G, column, tl.zeros([BG], tl.float64))
        put(rows, g, G, BY, tl.zeros([BG], tl.float64) + BY_TRITON)
        return
    mine = members + first
    zero = tl.zeros([BG], tl.float32)
    unused = tl.zeros([BM, BG], tl.float32)
    q = parameter(phi, q_number, g, phi_count, G)
    c, bound, sweeps, mean, var, low, high = measure(
        x, mine, unused, unused > 0, f, zero, zero, q, m, F, 1, 1, 1, 0, F, 0, False, False, POWER, ROOT, BIG, BM
    )
    if not CENTERED:
        c, bound = mean * 0, bound * 0
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    c2, mean2, low2, high2 = c * 0, c * 0, c * 0, c * 0
    if SPREAD_KIND == 2 or SPREAD_KIND == 4:
        head, rest = removed_of(c, al, sh)
        c2, _, _, mean2, _, low2, high2 = measure(
            x, mine, unused, unused > 0, f, head, rest, zero + q2_number, m, F, 1, 1, 1, 0, F, 0,
            False, True, SPREAD_KIND == 4, ROOT_2, BIG, BM,
        )  # fmt: skip
    mass = tl.zeros([BG], tl.float64) + m
    head, rest, rho = settle(
        rows, g, G, c, bound, sweeps, mean, var, low, high, mass, c2, mean2, high2, low2, al, sh,
        eps, grad_floor, factor, floor, SPREAD_KIND,
    )  # fmt: skip
    if y is not None:
        scale, add = parameter(gamma, 1.0, f, PG, F) * rho, parameter(beta, 0.0, f, PG, F)
        for start in range(0, m, BM):
            j = start + tl.arange(0, BM)
            v, at, mask = read(x, mine, f, j, zero, zero, m, F, 1, 1, 1, 0, F, 0, False, False, BIG)
            z = ((v - head[None, :]) - rest[None, :]) * scale[None, :] + add[None, :]
            tl.store(y + at, z.to(y.dtype.element_ty), mask=mask)


@triton.jit
def segments_backward_kernel(
    x, grad, dx, rows, offsets, members, gradients, phi, q_number, phi_count, alpha, alpha_number, alpha_count,
    shift, shift_count, gamma, q2_number, factor, floor, N, S, F, G, PG: tl.constexpr,
    POWER: tl.constexpr, LEARNED: tl.constexpr, ROOT: tl.constexpr, ROOT_2: tl.constexpr, SPREAD_KIND: tl.constexpr,
    BIG: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """dx, and the gradients of the parameters per group, float32 [rows, groups]."""
    segment, f, g, first, m = segment_of(offsets, F, G, BIG, BG)
    inside = g < G
    fill_strangers(dx, offsets, members, segment, f, N, S, F, BIG, BM)
    mine = members + first
    zero = tl.zeros([BG], tl.float32)
    q = parameter(phi, q_number, g, phi_count, G)
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    center, wide_rho = get(rows, g, G, CENTER, 0.0), get(rows, g, G, RHO, 0.0)
    head, rest = removed_of(center, al, sh)
    rho, spread = wide_rho.to(tl.float32), get(rows, g, G, SPREAD, 1.0).to(tl.float32)
    c_head, c_rest, inverse, least, alone, middle, unit2, least2, floored = saved_of(rows, g, G)
    nothing = tl.zeros([BG], tl.float64)
    g0, g1, slopes, logs, edges, signed = nothing, nothing, nothing, nothing, nothing, nothing
    for start in range(0, m, BM):
        j = start + tl.arange(0, BM)
        v, _, mask = read(x, mine, f, j, zero, zero, m, F, 1, 1, 1, 0, F, 0, False, False, BIG)
        h, _, _ = read(grad, mine, f, j, zero, zero, m, F, 1, 1, 1, 0, F, 0, False, False, BIG)
        z = (v - head[None, :]) - rest[None, :]
        g0 += tl.sum(h, axis=0).to(tl.float64)
        g1 += tl.sum(h * (z * rho[None, :]), axis=0).to(tl.float64)
        if POWER:
            r = ((v - c_head[None, :]) - c_rest[None, :]) * inverse[None, :]
            w = slope_of_center(r, q[None, :], least[None, :], alone[None, :], ROOT)
            slopes += tl.sum(tl.where(mask, w, 0.0), axis=0).to(tl.float64)
            if LEARNED:
                logs += tl.sum(tl.where(mask, log_moment(r, q[None, :]), 0.0), axis=0).to(tl.float64)
        if SPREAD_KIND >= 2:
            e = slope_of_spread(
                z, spread[None, :], middle[None, :], unit2[None, :], least2[None, :], floored[None, :], q2_number,
                SPREAD_KIND, ROOT_2,
            )  # fmt: skip
            edges += tl.sum(tl.where(mask, e, 0.0), axis=0).to(tl.float64)
            signed += tl.sum(tl.where(mask, e * sign(z), 0.0), axis=0).to(tl.float64)
    own_gamma = parameter(gamma, 1.0, f, PG, F).to(tl.float64)
    by_mean, d_center, of_h, of_x_hat, of_edge, of_slope = factors_of_dx(
        rows, g, G, al, own_gamma, g0, g1, slopes, edges, signed, factor, floor, POWER, SPREAD_KIND
    )
    present = m > 0  # else 0/0
    if LEARNED:
        by_phi = gradient_of_phi(rows, g, G, q, d_center, slopes, logs)
        tl.store(gradients + G * BY_PHI + g, tl.where(present, by_phi, 0.0).to(tl.float32), mask=inside)
    tl.store(gradients + G * BY_ALPHA + g, tl.where(present, -center * by_mean, 0.0).to(tl.float32), mask=inside)
    tl.store(gradients + G * BY_SHIFT + g, tl.where(present, by_mean, 0.0).to(tl.float32), mask=inside)
    tl.store(gradients + G * BY_GAMMA + g, g1.to(tl.float32), mask=inside)
    tl.store(gradients + G * BY_BETA + g, g0.to(tl.float32), mask=inside)
    scale, by_x_hat = of_h.to(tl.float32), of_x_hat.to(tl.float32)
    by_edge, by_slope = of_edge.to(tl.float32), of_slope.to(tl.float32)
    for start in range(0, m, BM):
        j = start + tl.arange(0, BM)
        v, at, mask = read(x, mine, f, j, zero, zero, m, F, 1, 1, 1, 0, F, 0, False, False, BIG)
        h, _, _ = read(grad, mine, f, j, zero, zero, m, F, 1, 1, 1, 0, F, 0, False, False, BIG)
        z = (v - head[None, :]) - rest[None, :]
        d = gradient_of_values(
            v, h, z, scale, rho, spread, by_x_hat, by_edge, by_slope, q, c_head, c_rest, inverse, least, alone,
            middle, unit2, least2, floored, q2_number, POWER, ROOT, ROOT_2, SPREAD_KIND,
        )  # fmt: skip
        tl.store(dx + at, d.to(dx.dtype.element_ty), mask=mask)
