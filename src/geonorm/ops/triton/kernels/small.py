"""Small groups: one launch that measures, saves and writes. The values of a group stay in registers."""

import triton
import triton.language as tl

from .groups import parameter, read
from .measure import measure
from .state import removed_of, settle


@triton.jit
def affine(values, g, j, G, m, PG: tl.constexpr, JD: tl.constexpr, JM: tl.constexpr, number):
    """γ or β for a tile: entry (g % PG)·JM + (j // JD) % JM. ``number`` where there is no tensor."""
    if values is None:
        found = tl.zeros((1, 1), tl.float32) + number
    elif JM == 1:
        found = tl.load(values + g % PG, mask=g < G, other=0.0).to(tl.float32)[None, :]
    else:
        at = ((g % PG) * JM)[None, :] + ((j // JD) % JM)[:, None]
        found = tl.load(values + at, mask=(g < G)[None, :] & (j < m)[:, None], other=0.0).to(tl.float32)
    return found


@triton.jit
def small_kernel(
    x, y, rows, phi, q_number, phi_count, alpha, alpha_number, alpha_count, shift, shift_count, gamma, beta,
    eps, grad_floor, q2_number, factor, floor,
    m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    PG: tl.constexpr, JD: tl.constexpr, JM: tl.constexpr,
    CENTERED: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr, ROOT_2: tl.constexpr, SPREAD_KIND: tl.constexpr,
    BIG: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """One program per BG groups. ``y`` may be None: then only the rows are written."""
    g, j = tl.program_id(0) * BG + tl.arange(0, BG), tl.arange(0, BM)
    zero = tl.zeros([BG], tl.float32)
    v, at, mask = read(x, None, g, j, zero, zero, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, False, BIG)
    q = parameter(phi, q_number, g, phi_count, G)
    c, bound, sweeps, mean, var, low, high = measure(
        x, None, v, mask, g, zero, zero, q, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner,
        True, False, POWER, ROOT, BIG, BM,
    )  # fmt: skip
    if not CENTERED:
        c, bound = mean * 0, bound * 0
    al, sh = parameter(alpha, alpha_number, g, alpha_count, G), parameter(shift, 0.0, g, shift_count, G)
    c2, mean2, low2, high2 = c * 0, c * 0, c * 0, c * 0
    head, rest = removed_of(c, al, sh)
    if SPREAD_KIND == 2 or SPREAD_KIND == 4:
        folded = tl.where(mask, tl.abs((v - head[None, :]) - rest[None, :]), 0.0)
        c2, _, _, mean2, _, low2, high2 = measure(
            x, None, folded, mask, g, head, rest, zero + q2_number, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner,
            True, True, SPREAD_KIND == 4, ROOT_2, BIG, BM,
        )  # fmt: skip
    mass = c * 0 + m
    head, rest, rho = settle(
        rows, g, G, c, bound, sweeps, mean, var, low, high, mass, c2, mean2, high2, low2, al, sh,
        eps, grad_floor, factor, floor, SPREAD_KIND,
    )  # fmt: skip
    if y is not None:
        scale = affine(gamma, g, j, G, m, PG, JD, JM, 1.0) * rho[None, :]
        z = ((v - head[None, :]) - rest[None, :]) * scale + affine(beta, g, j, G, m, PG, JD, JM, 0.0)
        tl.store(y + at, z.to(y.dtype.element_ty), mask=mask)
