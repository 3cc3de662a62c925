"""The running statistics of a layer, updated by one program: ``ops/running.py`` on the device."""

import triton
import triton.language as tl

from .state import CENTER, MASS, MEAN, SPREAD, VAR, get


@triton.jit
def is_stale(own, source, seen_own, seen_source, C, BC: tl.constexpr):
    """Whether another tool wrote ``source`` and not ``own`` since the last update."""
    differs, same = 0, 1
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC)
        mask = c < C
        other = tl.load(source + c, mask=mask, other=0.0) != tl.load(seen_source + c, mask=mask, other=0.0)
        alike = tl.load(own + c, mask=mask, other=0.0) == tl.load(seen_own + c, mask=mask, other=0.0)
        differs = tl.maximum(differs, tl.max((other & mask).to(tl.int32), axis=0))
        same = tl.minimum(same, tl.min((alike | (c >= C)).to(tl.int32), axis=0))
    return (differs > 0) & (same > 0)


@triton.jit
def move(buffer, c, mask, old, value, share):
    """Move a buffer towards a value; where that is not finite the buffer stays. Returns what is stored."""
    new = tl.where(value - value == 0, (1.0 - share) * old + share * value, old)
    tl.store(buffer + c, new, mask=mask)
    return new


@triton.jit
def running_kernel(
    rows, mean, var, center, scale, seen_mean, seen_var, seen_center, seen_scale, batches, factor, factor_number,
    normal_scale, C, BC: tl.constexpr,
):  # fmt: skip
    """One program. Buffers and copies are float32 [C] or None; so is the factor, or its number counts."""
    if factor is None:
        share = factor_number
    else:
        share = tl.load(factor).to(tl.float32)
    fresh_center, fresh_scale = False, False
    if seen_center is not None:
        fresh_center = is_stale(center, mean, seen_center, seen_mean, C, BC)
    if seen_scale is not None:
        fresh_scale = is_stale(scale, var, seen_scale, seen_var, C, BC)
    for first in range(0, C, BC):
        c = first + tl.arange(0, BC)
        mask = c < C
        mass = get(rows, c, C, MASS, 1.0)
        nan = float("nan")
        here = mass > 0
        old_mean, old_var = tl.load(mean + c, mask=mask, other=0.0), tl.load(var + c, mask=mask, other=0.0)
        unbiased = get(rows, c, C, VAR, 0.0) * (mass / tl.maximum(mass - 1, 1e-30))
        new_mean = move(mean, c, mask, old_mean, tl.where(here, get(rows, c, C, MEAN, 0.0), nan).to(tl.float32), share)
        new_var = move(var, c, mask, old_var, tl.where(mass > 1, unbiased, nan).to(tl.float32), share)
        if center is not None:
            old = tl.load(center + c, mask=mask, other=0.0)
            old = tl.where(fresh_center, old_mean, old)
            new = move(center, c, mask, old, tl.where(here, get(rows, c, C, CENTER, 0.0), nan).to(tl.float32), share)
            if seen_center is not None:
                tl.store(seen_center + c, new, mask=mask)
        if scale is not None:
            spread = get(rows, c, C, SPREAD, 0.0)
            old = tl.load(scale + c, mask=mask, other=0.0)
            old = tl.where(fresh_scale, old_var * normal_scale, old)
            new = move(scale, c, mask, old, tl.where(here, spread * spread, nan).to(tl.float32), share)
            if seen_scale is not None:
                tl.store(seen_scale + c, new, mask=mask)
        if seen_mean is not None:
            tl.store(seen_mean + c, new_mean, mask=mask)
        if seen_var is not None:
            tl.store(seen_var + c, new_var, mask=mask)
    if batches is not None:
        tl.store(batches, tl.load(batches) + 1)
