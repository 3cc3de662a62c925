"""Backward: sums over the groups, then dx and the gradients of parameters; formulas in ``ops/torch/norm.py``.

With h = γg, G₀ = Σh, G₁ = Σhx̂ and S = Σdz of a group, w_i the slopes of the center and e_i those of the spread,

    dz_i = ρh_i + ds·(factor·e_i·sgn z_i / Σe)        dx_i = dz_i − αS·w_i/Σw        ds = −sρ²·G₁

For the rms spread the second term of dz is −ρG₁·x̂_i/M, and for one that is not scaled there is none.
"""

import triton
import triton.language as tl

from .groups import first_member, parameter, place, read, split_in_two
from .large import deviation, total
from .search import TINY, power
from .small import affine
from .state import CENTER, FLOORED, LEAST, LEAST_2, MASS, MEAN_Z, MIDDLE, RHO, SPREAD, UNIT, UNIT_2, get, removed_of

# Rows of the sums, float64 [rows, groups, parts].
G_0, G_1, SLOPES, LOGS, EDGES, SIGNED_EDGES = [tl.constexpr(i) for i in range(6)]
BACKWARD_SUM_ROWS = 6
# Rows of the gradients, float32 [rows, groups].
BY_PHI, BY_ALPHA, BY_SHIFT, BY_GAMMA, BY_BETA = [tl.constexpr(i) for i in range(5)]
GRADIENT_ROWS = 5


@triton.jit
def slope_of_center(r, q, least, alone, ROOT: tl.constexpr):
    """|r|^(φ−2), floored for φ < 2; for φ > 2, 0 at r = 0, except in a group of equal values."""
    size = tl.abs(r)
    if ROOT:
        w = tl.rsqrt(tl.maximum(size, least))
    else:
        w = power(tl.where(q < 1, tl.maximum(size, least), tl.maximum(size, TINY)), q - 1, False)
        w = tl.where((size == 0) & (q > 1), alone, w)
    return w


@triton.jit
def slope_of_spread(z, spread, middle, unit2, least2, floored, q2, SPREAD_KIND: tl.constexpr, ROOT_2: tl.constexpr):
    """e_i: how much each |z| counts in the spread."""
    size = tl.abs(z)
    if SPREAD_KIND == 3:
        e = tl.where(size == spread, 1.0, 0.0)
    elif SPREAD_KIND == 4:
        alone = tl.where(unit2 == 0, 1.0, 0.0)
        r = (size - middle) * (1.0 / tl.where(unit2 > 0, unit2, 1.0))
        e = tl.where(floored > 0, 1.0, slope_of_center(r, q2 + size * 0, least2, alone, ROOT_2))
    else:
        e = size * 0 + 1.0
    return e


@triton.jit
def sign(z):
    """The sign of z, 0 at 0."""
    return tl.where(z > 0, 1.0, tl.where(z < 0, -1.0, 0.0))


@triton.jit
def log_moment(r, q):
    """sgn(r)|r|^q ln|r|, which the gradient of φ adds up."""
    size = tl.maximum(tl.abs(r), TINY)
    return sign(r) * power(size, q, False) * (tl.log2(size) * 0.6931471805599453)


@triton.jit
def saved_of(rows, g, G):
    """What backward needs of the saved rows besides center, spread and ρ.

    Center as a float32 and a remainder, 1/unit, floor of |r|, whether all values are equal; then for a robust spread
    its center, unit, floor, and whether it is at its least.
    """
    c_head, c_rest = split_in_two(get(rows, g, G, CENTER, 0.0))
    unit = get(rows, g, G, UNIT, 1.0).to(tl.float32)
    alone = tl.where(unit == 0, 1.0, 0.0)
    inverse = 1.0 / tl.where(unit > 0, unit, 1.0)
    least, middle = get(rows, g, G, LEAST, 1.0).to(tl.float32), get(rows, g, G, MIDDLE, 0.0).to(tl.float32)
    unit2, least2 = get(rows, g, G, UNIT_2, 1.0).to(tl.float32), get(rows, g, G, LEAST_2, 1.0).to(tl.float32)
    floored = get(rows, g, G, FLOORED, 0.0).to(tl.float32)
    return c_head, c_rest, inverse, least, alone, middle, unit2, least2, floored


@triton.jit
def factors_of_dx(
    rows, g, G, al, own_gamma, g0, g1, slopes, edges, signed, factor, floor,
    POWER: tl.constexpr, SPREAD_KIND: tl.constexpr,
):  # fmt: skip
    """From the sums of a group: Σdz, dc, and what h, x̂, e·sgn z and w are multiplied by in dx; float64."""
    rho, mass = get(rows, g, G, RHO, 0.0), get(rows, g, G, MASS, 1.0)
    all_g, all_gx = own_gamma * g0, own_gamma * g1
    edge, curve = g0 * 0, g0 * 0
    by_mean = rho * all_g
    if SPREAD_KIND == 1:
        curve = -rho * all_gx / mass
        by_mean += curve * mass * rho * get(rows, g, G, MEAN_Z, 0.0)
    elif SPREAD_KIND >= 2:
        d_spread = -(get(rows, g, G, SPREAD, 1.0) * rho) * rho * all_gx
        if SPREAD_KIND == 4:
            d_spread = d_spread * tl.where(get(rows, g, G, FLOORED, 0.0) > 0, floor, factor)
        edge = d_spread / tl.where(edges > 0, edges, 1.0)
        by_mean += edge * signed
    d_center = -al.to(tl.float64) * by_mean
    if POWER:
        slopes = tl.where(slopes == 0, 1.0, slopes)  # NaN stays
    else:
        slopes = mass
    return by_mean, d_center, own_gamma * rho, curve, edge, d_center / slopes


@triton.jit
def gradient_of_phi(rows, g, G, q, d_center, slopes, logs):
    """The gradient of φ from Σw and Σ sgn(r)|r|^q ln|r|."""
    slopes = tl.where(slopes == 0, 1.0, slopes)
    return d_center * get(rows, g, G, UNIT, 1.0) * logs / (slopes * q.to(tl.float64))


@triton.jit
def gradient_of_values(
    v, h, z, scale, rho, spread, of_x_hat, of_edge, of_slope, q, c_head, c_rest, inverse, least, alone,
    middle, unit2, least2, floored, q2,
    POWER: tl.constexpr, ROOT: tl.constexpr, ROOT_2: tl.constexpr, SPREAD_KIND: tl.constexpr,
):  # fmt: skip
    """dx of a tile, from the factors of its groups."""
    d = h * scale[None, :]
    if SPREAD_KIND == 1:
        d += z * rho[None, :] * of_x_hat[None, :]
    elif SPREAD_KIND >= 2:
        e = slope_of_spread(
            z, spread[None, :], middle[None, :], unit2[None, :], least2[None, :], floored[None, :], q2,
            SPREAD_KIND, ROOT_2,
        )  # fmt: skip
        d += e * sign(z) * of_edge[None, :]
    if POWER:
        r = ((v - c_head[None, :]) - c_rest[None, :]) * inverse[None, :]
        d += slope_of_center(r, q[None, :], least[None, :], alone[None, :], ROOT) * of_slope[None, :]
    else:
        d += of_slope[None, :]
    return d


@triton.jit
def reduce_kernel(
    x, grad, rows, sums, phi, q_number, phi_count, alpha, alpha_number, alpha_count, shift, shift_count, gamma,
    factors, joint, q2_number, positions: tl.constexpr,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    PG: tl.constexpr, JD: tl.constexpr, JM: tl.constexpr,
    POWER: tl.constexpr, LEARNED: tl.constexpr, ROOT: tl.constexpr, ROOT_2: tl.constexpr, SPREAD_KIND: tl.constexpr,
    EVEN: tl.constexpr, BIG: tl.constexpr, PARTS: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """G₀ and G₁ (without γ if it is the same for a whole group), Σw, Σ sgn(r)|r|^q ln|r|, Σe, Σ e·sgn z."""
    g, part = tl.program_id(0) * BG + tl.arange(0, BG), tl.program_id(1)
    q = parameter(phi, q_number, g, phi_count, G)
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    head, rest = removed_of(get(rows, g, G, CENTER, 0.0), al, sh)
    rho, spread = get(rows, g, G, RHO, 0.0).to(tl.float32), get(rows, g, G, SPREAD, 1.0).to(tl.float32)
    c_head, c_rest, inverse, least, alone, middle, unit2, least2, floored = saved_of(rows, g, G)
    zero_g = tl.zeros([BG], tl.float32)
    nothing = tl.zeros([BG], tl.float64)
    g0, g1, slopes, logs, edges, signed = nothing, nothing, nothing, nothing, nothing, nothing
    start = first_member(part, OUTER * INNER * BM, BIG)
    for outer in range(OUTER):
        zero = tl.zeros([BM, BG], tl.float32)
        g0_tile, g1_tile, w_tile, k_tile, e_tile, s_tile = zero, zero, zero, zero, zero, zero
        for inner in range(INNER):
            j = start + (outer * INNER + inner) * BM + tl.arange(0, BM)
            v, _, mask = read(
                x, None, g, j, zero_g, zero_g, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, EVEN, BIG
            )
            h, _, _ = read(
                grad, None, g, j, zero_g, zero_g, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, EVEN, BIG
            )
            z = deviation(v, g, j, m, G, head, rest, factors, joint, positions)
            if factors is not None:  # samples that are not finite count nowhere
                f = tl.load(factors + j // positions, mask=j < m, other=1.0)[:, None]
                z, h = tl.where(f == f, z, 0.0), tl.where(f == f, h, 0.0)
            if JM != 1:
                h = h * affine(gamma, g, j, G, m, PG, JD, JM, 1.0)
            g0_tile += h
            g1_tile += h * (z * rho[None, :])
            if POWER:
                r = ((v - c_head[None, :]) - c_rest[None, :]) * inverse[None, :]
                w = slope_of_center(r, (q + zero_g)[None, :], least[None, :], alone[None, :], ROOT)
                w_tile += tl.where(mask, w, 0.0)
                if LEARNED:
                    k_tile += tl.where(mask, log_moment(r, q[None, :]), 0.0)
            if SPREAD_KIND >= 2:
                e = slope_of_spread(
                    z, spread[None, :], middle[None, :], unit2[None, :], least2[None, :], floored[None, :],
                    q2_number, SPREAD_KIND, ROOT_2,
                )  # fmt: skip
                e_tile += tl.where(mask, e, 0.0)
                s_tile += tl.where(mask, e * sign(z), 0.0)
        g0 += tl.sum(g0_tile, axis=0).to(tl.float64)
        g1 += tl.sum(g1_tile, axis=0).to(tl.float64)
        if POWER:
            slopes += tl.sum(w_tile, axis=0).to(tl.float64)
            if LEARNED:
                logs += tl.sum(k_tile, axis=0).to(tl.float64)
        if SPREAD_KIND >= 2:
            edges += tl.sum(e_tile, axis=0).to(tl.float64)
            signed += tl.sum(s_tile, axis=0).to(tl.float64)
    here, row, inside = sums + g * PARTS + part, G * PARTS, g < G
    tl.store(here + row * G_0, g0, mask=inside)
    tl.store(here + row * G_1, g1, mask=inside)
    tl.store(here + row * SLOPES, slopes, mask=inside)
    tl.store(here + row * LOGS, logs, mask=inside)
    tl.store(here + row * EDGES, edges, mask=inside)
    tl.store(here + row * SIGNED_EDGES, signed, mask=inside)


@triton.jit
def dx_kernel(
    x, grad, dx, rows, sums, gradients, about, phi, q_number, phi_count, alpha, alpha_number, alpha_count,
    shift, shift_count, gamma, factors, joint, q2_number, factor, floor, positions: tl.constexpr,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    PG: tl.constexpr, JD: tl.constexpr, JM: tl.constexpr,
    POWER: tl.constexpr, LEARNED: tl.constexpr, ROOT: tl.constexpr, ROOT_2: tl.constexpr, SPREAD_KIND: tl.constexpr,
    EVEN: tl.constexpr, BIG: tl.constexpr, PARTS: tl.constexpr, BP: tl.constexpr,
    TILES: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """dx; part 0 writes the gradients per group, and ``about`` for ``affine_kernel``: α·c − b and ρ, float32 [3, G]."""
    g, part = tl.program_id(0) * BG + tl.arange(0, BG), tl.program_id(1)
    q = parameter(phi, q_number, g, phi_count, G)
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    center, rho = get(rows, g, G, CENTER, 0.0), get(rows, g, G, RHO, 0.0)
    head, rest = removed_of(center, al, sh)
    spread = get(rows, g, G, SPREAD, 1.0).to(tl.float32)
    c_head, c_rest, inverse, least, alone, middle, unit2, least2, floored = saved_of(rows, g, G)
    g0, g1 = total(sums, G_0, g, G, PARTS, BP), total(sums, G_1, g, G, PARTS, BP)
    own_gamma = tl.zeros([BG], tl.float64) + 1.0
    if JM == 1:
        own_gamma = parameter(gamma, 1.0, g, PG, G).to(tl.float64)
    slopes, edges, signed = g0 * 0, g0 * 0, g0 * 0
    if POWER:
        slopes = total(sums, SLOPES, g, G, PARTS, BP)
    if SPREAD_KIND >= 2:
        edges, signed = total(sums, EDGES, g, G, PARTS, BP), total(sums, SIGNED_EDGES, g, G, PARTS, BP)
    by_mean, d_center, of_h, of_x_hat, of_edge, of_slope = factors_of_dx(
        rows, g, G, al, own_gamma, g0, g1, slopes, edges, signed, factor, floor, POWER, SPREAD_KIND
    )
    if part == 0:
        inside = g < G
        if LEARNED:
            by_phi = gradient_of_phi(rows, g, G, q, d_center, slopes, total(sums, LOGS, g, G, PARTS, BP))
            tl.store(gradients + G * BY_PHI + g, by_phi.to(tl.float32), mask=inside)
        tl.store(gradients + G * BY_ALPHA + g, (-center * by_mean).to(tl.float32), mask=inside)
        tl.store(gradients + G * BY_SHIFT + g, by_mean.to(tl.float32), mask=inside)
        tl.store(gradients + G * BY_GAMMA + g, g1.to(tl.float32), mask=inside)
        tl.store(gradients + G * BY_BETA + g, g0.to(tl.float32), mask=inside)
        if about is not None:
            tl.store(about + g, head, mask=inside)
            tl.store(about + G + g, rest, mask=inside)
            tl.store(about + 2 * G + g, rho.to(tl.float32), mask=inside)

    scale, narrow_rho = of_h.to(tl.float32), rho.to(tl.float32)
    of_x_hat, of_edge, of_slope = of_x_hat.to(tl.float32), of_edge.to(tl.float32), of_slope.to(tl.float32)
    zero_g = tl.zeros([BG], tl.float32)
    start = first_member(part, TILES * BM, BIG)
    for tile in range(TILES):
        j = start + tile * BM + tl.arange(0, BM)
        v, at, mask = read(
            x, None, g, j, zero_g, zero_g, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, EVEN, BIG
        )
        h, _, _ = read(
            grad, None, g, j, zero_g, zero_g, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, EVEN, BIG
        )
        z = deviation(v, g, j, m, G, head, rest, factors, joint, positions)
        if JM != 1:
            h = h * affine(gamma, g, j, G, m, PG, JD, JM, 1.0)
        d = gradient_of_values(
            v, h, z, scale, narrow_rho, spread, of_x_hat, of_edge, of_slope, q + zero_g, c_head, c_rest, inverse, least,
            alone, middle, unit2, least2, floored, q2_number, POWER, ROOT, ROOT_2, SPREAD_KIND,
        )  # fmt: skip
        if factors is not None:
            f = tl.load(factors + j // positions, mask=j < m, other=1.0)[:, None]
            d = tl.where(f == f, d * f, 0.0)
        d = d.to(dx.dtype.element_ty)
        if EVEN:
            tl.store(dx + at, d)
        else:
            tl.store(dx + at, d, mask=mask)


@triton.jit
def affine_kernel(
    x, grad, about, sums, m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    PG: tl.constexpr, JD: tl.constexpr, JM: tl.constexpr, BIG: tl.constexpr,
    PARTS: tl.constexpr, TILES: tl.constexpr, BM: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Σ gx̂ and Σ g per entry of a γ that varies inside the groups, float32 [2, entries, parts]."""
    p, part = tl.program_id(0) * BP + tl.arange(0, BP), tl.program_id(1)
    members = m // JM  # of one group that share an entry
    count = (G // PG) * members
    g1, g0 = tl.zeros([BM, BP], tl.float32), tl.zeros([BM, BP], tl.float32)
    start = first_member(part, TILES * BM, BIG)
    for tile in range(TILES):
        i = (start + tile * BM + tl.arange(0, BM))[:, None]
        mask = (i < count) & (p < PG * JM)[None, :]
        g = (i // members) * PG + (p // JM)[None, :]
        k = i % members
        j = ((k // JD) * JM + (p % JM)[None, :]) * JD + k % JD
        at = place(g, j, GI, JI, g_outer, g_inner, j_outer, j_inner, BIG)
        v, d = tl.load(x + at, mask=mask, other=0.0), tl.load(grad + at, mask=mask, other=0.0)
        head, rest = tl.load(about + g, mask=mask, other=0.0), tl.load(about + G + g, mask=mask, other=0.0)
        rho = tl.load(about + 2 * G + g, mask=mask, other=0.0)
        g1 += d.to(tl.float32) * (((v.to(tl.float32) - head) - rest) * rho)
        g0 += d.to(tl.float32)
    here, inside = sums + p * PARTS + part, p < PG * JM
    tl.store(here, tl.sum(g1, axis=0), mask=inside)
    tl.store(here + PG * JM * PARTS, tl.sum(g0, axis=0), mask=inside)
