"""Sweeps over the data of every group, and the search that uses them; ``search.py`` has its mathematics."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..grouping import Axes, Grouping
from ..precision import wide
from .search import MAX_SWEEPS, Sums, advance, begin, set_sweep_point, smallest_distance

_TILE = 1 << 18  # elements per tile of a sweep: the temporaries stay in the cache and memory stays flat
_SUBSAMPLE = 256


class Solution(NamedTuple):
    """Per group: the center, a bound on its error (both float64), and the number of sweeps over the data."""

    center: Tensor
    bound: Tensor
    sweeps: Tensor


class Extent(NamedTuple):
    """Range, mean and weights of each group, in the widest dtype."""

    lowest: Tensor
    highest: Tensor
    mean: Tensor
    mass: Tensor  # M
    lightest: Tensor  # smallest positive weight; 1 when there are none


def sweep(
    x: Tensor,
    weight: Tensor | None,
    y: Tensor,
    reach_up: Tensor,
    reach_down: Tensor,
    q: float | Tensor,
    groups: Grouping,
    near: bool,
) -> Sums:
    """One pass over the data at the points y. Statistics are passed in and returned in float64.

    Signs and clamps separate the two sides; ``where`` would take five times the arithmetic.
    """
    head = y.to(x.dtype)
    r = x - groups.expand(head)
    if x.dtype != y.dtype:
        r = r - groups.expand((y - head).to(x.dtype))
    # One quotient is positive, the other negative: the larger is the distance in units of its own side's extreme.
    # A side of reach 0 has no values but the tie at y itself, for which 0/tiny = 0 avoids 0/0.
    tiny = torch.finfo(x.dtype).tiny
    up, down = (groups.expand(reach.to(x.dtype).clamp_min(tiny)) for reach in (reach_up, reach_down))
    a = torch.maximum(r / up, r / -down)
    a = a.clamp_min(smallest_distance())
    p = a.pow(q if isinstance(q, float) else groups.expand(q.to(x.dtype))) * r.sign()
    if weight is not None:
        p = p * weight
    w = p / a

    def total(values: Tensor) -> Tensor:
        return wide(groups.sum(values))

    def mass(where: Tensor) -> Tensor:
        return total(where.to(x.dtype) if weight is None else where * weight)

    sums = (total(p.clamp_min(0)), -total(p.clamp_max(0)), total(w.clamp_min(0)), -total(w.clamp_max(0)))
    at_y = r == 0
    if not near:
        zero = torch.zeros_like(sums[0])
        return Sums(*sums, mass(at_y), torch.full_like(zero, math.inf), zero, zero)
    ignore = at_y if weight is None else at_y | (weight == 0)
    distance = torch.where(ignore, math.inf, r.abs())
    closest = groups.min(distance)
    each = groups.expand(closest)
    return Sums(*sums, mass(at_y), wide(closest), mass(r == each), mass(r == -each))


def sweep_rows(
    x: Tensor,
    weight: Tensor | None,
    y: Tensor,
    reach_up: Tensor,
    reach_down: Tensor,
    q: float | Tensor,
    near: bool,
    active: Tensor,
) -> Sums:
    """The sweep over the rows still active, tile by tile. Rows already solved return zeros."""
    columns = x.shape[1]
    if not columns:  # this process has no values, but others do
        nothing = torch.zeros_like(y)
        return Sums(*[nothing] * 5, torch.full_like(y, math.inf), nothing, nothing)  # type: ignore[call-arg]
    rows = active.nonzero()[:, 0] if not bool(active.all()) else torch.arange(len(x), device=x.device)
    out = Sums(*(y.new_zeros(y.shape) for _ in Sums._fields))
    height, width = max(1, _TILE // columns), min(columns, _TILE)
    for part in rows.split(height) if len(rows) else ():
        first, last = int(part[0]), int(part[-1]) + 1
        pick = slice(first, last) if last - first == len(part) else part  # a slice is a view, not a copy
        sums: Sums | None = None
        for start in range(0, columns, width):
            piece = slice(start, start + width)
            tile = sweep(
                x[pick, piece],
                None if weight is None else weight[pick, piece],
                y[pick],
                reach_up[pick],
                reach_down[pick],
                q if isinstance(q, float) else q[pick],
                Axes((1,)),
                near,
            )
            sums = tile if sums is None else sums.merge(tile)
        assert sums is not None
        for whole, value in zip(out, sums, strict=True):
            whole[pick] = value
    return out


def measure_extent(x: Tensor, weight: Tensor | None, groups: Grouping, ends: tuple[Tensor, Tensor]) -> Extent:
    """The statistics that need no search. Where the weight is 0, x must hold some value of its group.

    ``ends``: the extremes of x, which the caller knows already.
    """
    mass = groups.count(x) if weight is None else groups.sum(wide(weight))

    def mean(values: Tensor) -> Tensor:
        return wide(groups.sum(values if weight is None else values * weight)) / mass

    rough = mean(x).to(x.dtype)  # a second pass around it saves the digits that a large offset would cost
    centred = x - groups.expand(rough)
    lightest = torch.ones_like(mass)
    if weight is not None:
        lightest = wide(groups.min(torch.where(weight > 0, weight, math.inf)))
    return Extent(
        lowest=wide(ends[0]),
        highest=wide(ends[1]),
        mean=wide(rough) + mean(centred),
        mass=mass,
        lightest=lightest,
    )


def solve(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, seen: Extent, sweeps: int | None = None
) -> Solution:
    """The center of every group for 1 < φ < ∞.

    With ``sweeps=None`` each group goes on until rounding error hides the sign of F. A number makes exactly that many
    sweeps, with no decision that depends on the data, so that it can be traced. Groups that hold NaN or Inf get NaN.
    """
    adaptive = sweeps is None
    eps = torch.finfo(x.dtype).eps
    exponent = float(phi) - 1 if not isinstance(phi, Tensor) else None
    each_phi = (
        phi.to(seen.mean) if isinstance(phi, Tensor) else seen.mean.new_full((), phi)
    )  # copies no number to a GPU
    each_phi = each_phi.expand_as(seen.mean)
    start = seen.mean
    if adaptive and isinstance(groups, Axes) and x.shape[1] > 16 * _SUBSAMPLE:
        start = _start_from_sample(x, phi, weight, start)
    everywhere = torch.ones_like(start, dtype=torch.bool)
    s = begin(each_phi, seen.lowest, seen.highest, seen.mass, seen.lightest, start, everywhere)
    singular = adaptive and (exponent is None or exponent < 1)
    order = s.q if exponent is None else exponent
    for k in range(1, (MAX_SWEEPS if sweeps is None else sweeps) + 1):
        if adaptive and not bool(s.active.any()):
            break
        s = set_sweep_point(s, x.dtype)
        near = singular and k >= 4  # more passes over the data; most groups are done before
        if adaptive and isinstance(groups, Axes):
            sums = sweep_rows(x, weight, s.y, s.up, s.down, order, near, s.active[:, 0])
        else:
            sums = sweep(x, weight, s.y, s.up, s.down, order, groups, near)
        s = advance(s, sums, k, eps, adaptive)
    return Solution(s.center, s.bound, s.used.long())


def _start_from_sample(x: Tensor, phi: float | Tensor, weight: Tensor | None, otherwise: Tensor) -> Tensor:
    """The center of a strided subsample of each row: cheap, and it saves one or two sweeps over all the data."""
    stride = x.shape[1] // _SUBSAMPLE
    sample, sample_weight = x[:, ::stride], None if weight is None else weight[:, ::stride]
    groups = Axes((1,))
    seen = measure_extent(sample, sample_weight, groups, groups.extremes(sample))
    start = solve(sample, phi, sample_weight, groups, seen).center
    return torch.where(start.isfinite(), start, otherwise)
