"""The guard: which samples lie too far out, from each sample's moments per channel. See ``ops/torch/guard.py``.

    row_moments   mean and standard deviation of every sample in every channel
    usable        which samples are finite
    medians       median and scale of every channel, of at most 256 samples
    distances     how far samples lie from a center
    center        the next center, weighted by the inverse distances (Weiszfeld)
    verdict       median distance, radius, factors; the counts of the layer
    combine       mean and variance of every channel after the pull

``mean`` and ``deviation`` are float32 [samples, channels]. Sample i of a subsample of S out of N is i·N // S.
"""

import triton
import triton.language as tl

from .groups import keep, read
from .large import F_BOUND, F_CENTER, F_HIGH, F_LOW, F_MEAN, F_SWEEPS, F_VAR
from .search import SMALLEST_UNIT

MIN_SAMPLES = tl.constexpr(4)  # these are the numbers of ops/torch/guard.py; a test compares them
MIN_SCALE_RATIO = tl.constexpr(1e-6)
SCALE_ROUNDINGS = tl.constexpr(8.0)
MIN_DISTANCE = tl.constexpr(1e-6)
MIN_MEDIAN_DISTANCE = tl.constexpr(1e-4)
EPS = tl.constexpr(1.1920928955078125e-07)


@triton.jit
def row_moments_kernel(
    x, mean, deviation, m, G, g_outer, g_inner, j_outer, j_inner, GI: tl.constexpr, JI: tl.constexpr,
    BIG: tl.constexpr, BM: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """Mean and standard deviation of rows. Tiles are combined by Chan's formula; squares are in units of the tile."""
    g = tl.program_id(0) * BG + tl.arange(0, BG)
    zero = tl.zeros([BG], tl.float32)
    about, squares = tl.zeros([BG], tl.float64), tl.zeros([BG], tl.float64)
    for first in range(0, m, BM):
        j = first + tl.arange(0, BM)
        v, _, mask = read(
            x, None, g, j, zero, zero, m, G, GI, JI, g_outer, g_inner, j_outer, j_inner, False, False, BIG
        )
        here = tl.minimum(m - first, BM)
        rough = tl.sum(v * (1.0 / here), axis=0)
        d = tl.where(mask, v - rough[None, :], 0.0)
        widest = tl.maximum(tl.max(tl.abs(d), axis=0), SMALLEST_UNIT)
        d = d * (1.0 / widest)[None, :]
        wide, shift = widest.to(tl.float64), tl.sum(d, axis=0).to(tl.float64) / here
        square = tl.maximum(tl.sum(d * d, axis=0).to(tl.float64) - here * shift * shift, 0.0) + shift * 0
        tile_mean, share = rough.to(tl.float64) + shift * wide, (here * 1.0) / (first + here)
        gap = tile_mean - about
        squares += square * wide * wide + gap * gap * (first * share)
        about += gap * share
    inside = g < G
    tl.store(mean + g, about.to(tl.float32), mask=inside)
    tl.store(deviation + g, tl.sqrt(squares / m).to(tl.float32), mask=inside)


@triton.jit
def usable_kernel(mean, usable, N, C, BN: tl.constexpr, BC: tl.constexpr):
    """1 for samples whose means are all finite, else 0; int32."""
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    fine = tl.zeros([BN], tl.int32) + 1
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC)
        mask = (i < N)[:, None] & (c < C)[None, :]
        m = tl.load(mean + i[:, None] * C + c[None, :], mask=mask, other=0.0)
        fine = tl.minimum(fine, tl.min((m - m == 0).to(tl.int32), axis=1))
    tl.store(usable + i, fine, mask=i < N)


@triton.jit
def ordered(value):
    """An integer that orders float32 values as they are; its own inverse when applied twice to the bits."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def value_of(key):
    """The float32 value of such an integer."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def kth_smallest(values, mask, k):
    """The k-th smallest (from 0) of every column, among those in the mask: by bisection over the 32 bits, exact."""
    keys = ordered(values)
    lo = tl.zeros(k.shape, tl.int64) - 2147483648
    hi = tl.zeros(k.shape, tl.int64) + 2147483647
    for _ in range(32):
        middle = (lo + hi) >> 1
        below = tl.sum((mask & (keys <= middle.to(tl.int32)[None, :])).to(tl.int32), axis=0)
        enough = below > k
        hi = tl.where(enough, middle, hi)
        lo = tl.where(enough, lo, tl.minimum(middle + 1, hi))
    return value_of(lo.to(tl.int32))


@triton.jit
def medians_kernel(mean, deviation, usable, center, scale, N, C, S, BS: tl.constexpr, BC: tl.constexpr):
    """The median of every channel; and of the distances from it, or, where most are 0, of those that are not."""
    c, i = tl.program_id(0) * BC + tl.arange(0, BC), tl.arange(0, BS)
    row = (i.to(tl.int64) * N) // S
    inside = (i < S)[:, None] & (c < C)[None, :]
    at = row[:, None] * C + c[None, :]
    mask = inside & (tl.load(usable + row, mask=i < S, other=0) > 0)[:, None]
    m = tl.load(mean + at, mask=inside, other=0.0)
    d = tl.load(deviation + at, mask=inside, other=0.0)
    count = tl.sum(mask.to(tl.int32), axis=0)
    lower, upper = kth_smallest(m, mask, (count - 1) // 2), kth_smallest(m, mask, count // 2)
    y = tl.where(count > 0, 0.5 * lower.to(tl.float64) + 0.5 * upper.to(tl.float64), 0.0)
    gap, wide = m.to(tl.float64) - y[None, :], d.to(tl.float64)
    size = tl.sqrt(wide * wide + gap * gap).to(tl.float32)
    seen = mask & (size == size)
    number = tl.sum(seen.to(tl.int32), axis=0)
    median = kth_smallest(size, seen, (number - 1) // 2)
    median = tl.where(number > 0, median, 0.0)
    least = (tl.abs(y) * (SCALE_ROUNDINGS * EPS)).to(tl.float32)
    apart = seen & (size > least[None, :])
    others = tl.sum(apart.to(tl.int32), axis=0)
    of_others = kth_smallest(size, apart, (others - 1) // 2)
    median = tl.where(median > least, median, tl.where(others > 0, of_others, 0.0))
    tl.store(center + c, y, mask=c < C)
    tl.store(scale + c, median, mask=c < C)


@triton.jit
def largest_of(values, count, B: tl.constexpr):
    """The largest of a vector, by one program."""
    most = tl.zeros([B], tl.float32)
    for first in range(0, count, B):
        i = first + tl.arange(0, B)
        most = tl.maximum(most, tl.load(values + i, mask=i < count, other=0.0))
    return tl.max(most, axis=0)


@triton.jit
def floored_square(scale, largest):
    """The squared scale of channels, and at least a small fraction of the largest: a dead channel must not decide."""
    wide, most = scale.to(tl.float64), largest.to(tl.float64)
    return tl.maximum(wide * wide, most * most * MIN_SCALE_RATIO)


@triton.jit
def distances_kernel(mean, deviation, center, scale, distance, N, C, S, BN: tl.constexpr, BC: tl.constexpr):
    """float64 distances of the subsample from the center, in units of the scales."""
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    row = (i.to(tl.int64) * N) // S
    largest = largest_of(scale, C, BC)
    squares = tl.zeros([BN], tl.float64)
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC)
        mask = (i < S)[:, None] & (c < C)[None, :]
        at = row[:, None] * C + c[None, :]
        m, d = tl.load(mean + at, mask=mask, other=0.0), tl.load(deviation + at, mask=mask, other=0.0)
        gap, wide = m.to(tl.float64) - tl.load(center + c, mask=c < C, other=0.0)[None, :], d.to(tl.float64)
        wide = tl.where(wide - wide == 0, wide, float("inf"))
        square = floored_square(tl.load(scale + c, mask=c < C, other=0.0), largest)
        inverse = tl.where(square > 0, 1.0 / tl.where(square > 0, square, 1.0), 0.0)
        part = (wide * wide + gap * gap) * inverse[None, :]
        squares += tl.sum(tl.where(mask, part, 0.0), axis=1)
    tl.store(distance + i, tl.sqrt(squares / C), mask=i < S)


@triton.jit
def center_kernel(mean, usable, distance, center, N, C, S, BN: tl.constexpr, BC: tl.constexpr):
    """The mean of the subsample, weighted by the inverse distances."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    sums, weights = tl.zeros([BC], tl.float64), tl.full((), 0.0, tl.float64)
    for first in range(0, S, BN):
        i = first + tl.arange(0, BN)
        row = (i.to(tl.int64) * N) // S
        inside = (i < S)[:, None] & (c < C)[None, :]
        fine = tl.load(usable + row, mask=i < S, other=0) > 0
        d = tl.load(distance + i, mask=i < S, other=1.0)
        weight = tl.where(fine & (d == d), 1.0 / tl.maximum(d, MIN_DISTANCE), 0.0)
        m = tl.load(mean + row[:, None] * C + c[None, :], mask=inside & fine[:, None], other=0.0)
        sums += tl.sum(m.to(tl.float64) * weight[:, None], axis=0)
        weights += tl.sum(weight, axis=0)
    tl.store(center + c, sums / tl.where(weights > 0, weights, 1.0), mask=c < C)


@triton.jit
def verdict_kernel(distance, usable, center, scale, verdict, counts, k, N, C, BN: tl.constexpr, BC: tl.constexpr):
    """One program. ``verdict``: factors, distances, center, scales, radius, as ``ops/problem.py`` lays them out."""
    number = 0
    for first in range(0, N, BN):
        i = first + tl.arange(0, BN)
        number += tl.sum(tl.load(usable + i, mask=i < N, other=0), axis=0)
    wanted = (number - 1) // 2
    lo, hi = tl.full((), -1, tl.int64), tl.full((), 2147483647, tl.int64)  # distances are not negative
    for _ in range(33):
        middle = (lo + hi) >> 1
        below = 0
        for first in range(0, N, BN):
            i = first + tl.arange(0, BN)
            fine = tl.load(usable + i, mask=i < N, other=0) > 0
            key = ordered(tl.load(distance + i, mask=i < N, other=0.0).to(tl.float32))
            below += tl.sum((fine & (key <= middle)).to(tl.int32), axis=0)
        enough = below > wanted
        hi = tl.where(enough, middle, hi)
        lo = tl.where(enough, lo, tl.minimum(middle + 1, hi))
    median = value_of(tl.maximum(lo, 0).to(tl.int32)).to(tl.float64)
    judges = (number >= MIN_SAMPLES) & (median > MIN_MEDIAN_DISTANCE)
    radius = tl.where(judges, median * k, float("inf"))
    pulled, broken = 0, 0
    for first in range(0, N, BN):
        i = first + tl.arange(0, BN)
        fine = tl.load(usable + i, mask=i < N, other=0) > 0
        d = tl.load(distance + i, mask=i < N, other=0.0)
        far = fine & (d > radius)
        factor = tl.where(far, radius / tl.where(far, d, 1.0), 1.0).to(tl.float32)
        factor = tl.where(fine, factor, float("nan"))
        tl.store(verdict + i, factor, mask=i < N)
        tl.store(verdict + N + i, tl.where(fine, d, float("inf")).to(tl.float32), mask=i < N)
        pulled += tl.sum(((factor < 1.0) & (i < N)).to(tl.int32), axis=0)
        broken += tl.sum(((fine == 0) & (i < N)).to(tl.int32), axis=0)
    largest = largest_of(scale, C, BC)
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC)
        y = tl.load(center + c, mask=c < C, other=0.0)
        square = floored_square(tl.load(scale + c, mask=c < C, other=0.0), largest)
        tl.store(verdict + 2 * N + c, y.to(tl.float32), mask=c < C)
        tl.store(verdict + 2 * N + C + c, tl.sqrt(square).to(tl.float32), mask=c < C)
    tl.store(verdict + 2 * N + 2 * C, radius.to(tl.float32))
    if counts is not None:
        tl.store(counts, tl.load(counts) + 1)
        tl.store(counts + 1, tl.load(counts + 1) + (pulled > 0).to(tl.int64))
        tl.store(counts + 2, tl.load(counts + 2) + pulled)
        tl.store(counts + 3, tl.load(counts + 3) + broken)


@triton.jit
def combine_kernel(mean, deviation, verdict, found, mass, N, C, positions, BN: tl.constexpr, BC: tl.constexpr):
    """Mean and variance of every channel over the pulled samples; and how many values count, float64."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    y = tl.load(verdict + 2 * N + c, mask=c < C, other=0.0).to(tl.float64)
    total, samples = tl.zeros([BC], tl.float64), tl.full((), 0.0, tl.float64)
    for first in range(0, N, BN):
        i = first + tl.arange(0, BN)
        f = tl.load(verdict + i, mask=i < N, other=float("nan")).to(tl.float64)
        mask = (f == f)[:, None] & (c < C)[None, :]
        m = tl.load(mean + i[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float64)
        pulled = tl.where((f == 1.0)[:, None], m, y[None, :] + f[:, None] * (m - y[None, :]))
        total += tl.sum(tl.where(mask, pulled, 0.0), axis=0)
        samples += tl.sum(tl.where(f == f, 1.0, 0.0).to(tl.float64), axis=0)
    about = total / tl.where(samples > 0, samples, float("nan"))
    squares = tl.zeros([BC], tl.float64)
    for first in range(0, N, BN):
        i = first + tl.arange(0, BN)
        f = tl.load(verdict + i, mask=i < N, other=float("nan")).to(tl.float64)
        mask = (f == f)[:, None] & (c < C)[None, :]
        at = i[:, None] * C + c[None, :]
        m = tl.load(mean + at, mask=mask, other=0.0).to(tl.float64)
        d = tl.load(deviation + at, mask=mask & (f > 0)[:, None], other=0.0).to(tl.float64) * f[:, None]
        pulled = tl.where((f == 1.0)[:, None], m, y[None, :] + f[:, None] * (m - y[None, :]))
        gap = pulled - about[None, :]
        squares += tl.sum(tl.where(mask, gap * gap + d * d, 0.0), axis=0)
    var = squares / tl.where(samples > 0, samples, float("nan"))
    nothing = tl.zeros([BC], tl.float64)
    keep(found, F_CENTER, c, C, about)
    keep(found, F_BOUND, c, C, nothing)
    keep(found, F_SWEEPS, c, C, nothing)
    keep(found, F_MEAN, c, C, about)
    keep(found, F_VAR, c, C, var)
    keep(found, F_LOW, c, C, nothing)
    keep(found, F_HIGH, c, C, nothing)
    tl.store(mass + c, nothing + samples * positions, mask=c < C)
