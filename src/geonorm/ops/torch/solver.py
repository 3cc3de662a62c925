"""The certified solver: the L^φ center of every group, for any data and any φ in (1, ∞).

Notation, per group: values x_i with weights ω_i ≥ 0 (1 when there are none), M = Σω, q = φ − 1. The center μ is the
only root of F(y) = Σ ω sgn(x − y)|x − y|^q. At a point y the values above and below it are summed apart,

    P = Σ₊ ω|x − y|^q,   N = Σ₋ ω|x − y|^q,   W± = Σ± ω|x − y|^(q−1),   F = P − N.

**Step.** Newton on G = P^{1/q} − N^{1/q}, which has the same root as F but is linear where F is worst: at φ = 2, as
φ → ∞ and next to a heavy tie (post-ReLU zeros). Its step is a convex combination of the mean distances P/W₊ and
−N/W₋, so it never leaves [min, max]. Close to a single value (φ < 2) that value is treated exactly and the rest
linearly.

**Certificate.** One evaluation bounds the distance to the center: |y − μ| ≤ E with
    φ ≤ 2:  E = ½ |(2P/M)^{1/q} − (2N/M)^{1/q}|          (power means: each side falls at least at rate 1)
    φ ≥ 2:  E = |G| / (ω_min^{1/q} + g)                   (g: slope of the side that grows towards the center)
Rounding is part of it: the computed P and N are within a factor 1 ± κ of the true ones, κ a few eps, so the sign of
F is believed only when |F| > κ(P + N), and E grows by κ/q of its two terms. A bracket [lo, hi] collects what is
known; where it does not halve in three sweeps the next point is its middle, which makes the worst case logarithmic.

**Scale.** Each side is divided by its own extreme distance, so that no power over- or underflows for any φ. The point y
is a float64 number split into a value of x's dtype and a remainder: x − y keeps its digits under any offset.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..grouping import Axes, Grouping
from ..precision import wide

_TILE = 1 << 18  # elements per tile of a sweep: the temporaries stay in the cache and memory stays flat
MAX_SWEEPS = 200
_SUBSAMPLE = 256


def smallest_distance() -> float:
    """The smallest |x − y| in units of the side's extreme: keeps Σω|r|^(q−1) finite in float32.

    A function, as all such numbers that a derivative reads: with ``torch.compile(dynamic=True)`` Dynamo takes a global
    float for an input of the graph, and the second autograd.Function to read it cannot reach it.
    """
    return 1e-30


class Solution(NamedTuple):
    """Per group: the center, a bound on its error (both float64), and the number of sweeps over the data."""

    center: Tensor
    bound: Tensor
    sweeps: Tensor


class Extent(NamedTuple):
    """What a first look at the data tells of each group, in the widest dtype."""

    lowest: Tensor
    highest: Tensor
    mean: Tensor
    mass: Tensor  # M
    lightest: Tensor | None  # smallest positive weight


class Sums(NamedTuple):
    """What one sweep returns. Each side is in units of its own extreme distance."""

    above: Tensor  # P
    below: Tensor  # N
    above_slope: Tensor  # W₊
    below_slope: Tensor  # W₋
    tied: Tensor  # Σω over x = y
    nearest: Tensor  # distance of the nearest other value (inf unless asked for)
    nearest_above: Tensor  # Σω of the values at +nearest
    nearest_below: Tensor  # Σω of the values at −nearest

    def merge(self, other: Sums) -> Sums:
        """The sums of two parts of the same groups."""
        keep, take = self.nearest <= other.nearest, other.nearest <= self.nearest
        return Sums(
            self.above + other.above,
            self.below + other.below,
            self.above_slope + other.above_slope,
            self.below_slope + other.below_slope,
            self.tied + other.tied,
            torch.minimum(self.nearest, other.nearest),
            torch.where(keep, self.nearest_above, 0.0) + torch.where(take, other.nearest_above, 0.0),
            torch.where(keep, self.nearest_below, 0.0) + torch.where(take, other.nearest_below, 0.0),
        )


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
    """One pass over the data at the points y. Statistics come and leave in float64.

    Selecting the two sides by ``where`` would cost five times the arithmetic: signs and clamps do the same.
    """
    head = y.to(x.dtype)
    r = x - groups.expand(head)
    if x.dtype != y.dtype:
        r = r - groups.expand((y - head).to(x.dtype))
    # One quotient is positive, the other negative: the larger is the distance in units of its own side's extreme.
    # A side of reach 0 has no values: only the tie at y itself, 0/tiny = 0, and not 0/0.
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
    if not columns:  # a process without values, beside others that have some
        nothing = torch.zeros_like(y)
        return Sums(*[nothing] * 5, torch.full_like(y, math.inf), nothing, nothing)  # type: ignore[call-arg]
    rows = active.nonzero()[:, 0] if not bool(active.all()) else torch.arange(len(x), device=x.device)
    out = Sums(*(y.new_zeros(y.shape) for _ in Sums._fields))
    height, width = max(1, _TILE // columns), min(columns, _TILE)
    for part in rows.split(height) if len(rows) else ():
        first, last = int(part[0]), int(part[-1]) + 1
        pick = slice(first, last) if last - first == len(part) else part  # a run of rows is a view, no copy
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


class Evaluation(NamedTuple):
    """What the sums at y say of the center: in which direction it lies, how far at most, and where Newton would go."""

    direction: Tensor  # +1 above y, −1 below, 0 where rounding hides it
    error: Tensor  # |y − μ| at most
    step: Tensor


def evaluate(s: Sums, reach_up: Tensor, reach_down: Tensor, q: Tensor, seen: Extent, eps: float) -> Evaluation:
    """What the sums at a point say; ``reach_up`` and ``reach_down`` are the units of its two sides."""
    below_2 = q < 1
    shift = torch.where(below_2, (2.0 / seen.mass).log(), 0.0)
    span = seen.highest - seen.lowest
    far_up, far_down = (reach_up / span).log(), (reach_down / span).log()
    log_up = far_up + (s.above.log() + shift) / q
    log_down = far_down + (s.below.log() + shift) / q
    up, down = span * log_up.exp(), span * log_down.exp()
    lead = log_up - log_down  # ln(P/N)/q
    # Relative error of P and N: q times that of |x − y|, one pow, one cascade sum; then the logarithms, in float64.
    kappa = eps * (2 * q + 16) - torch.finfo(s.above.dtype).eps * q * (far_up + far_down).clamp_min(-1e3)
    sure = (0.5 * q * lead).tanh().abs() > kappa  # |P − N| > κ(P + N)
    mean_up, mean_down = reach_up * s.above / s.above_slope, reach_down * s.below / s.below_slope
    grows_up, grows_down = ((a / b).nan_to_num(0.0, 0.0, 0.0) for a, b in ((up, mean_up), (down, mean_down)))
    growing = torch.where(lead > 0, grows_down, grows_up)
    growing = torch.where(sure, growing, torch.minimum(grows_up, grows_down))  # on whichever side the center lies
    lightest = 1.0 if seen.lightest is None else seen.lightest.pow(1 / q)
    slope = torch.where(below_2, 2.0, lightest + growing)
    error = ((up - down).abs() + kappa / q * (up + down)) / slope + smallest_distance() * (reach_up + reach_down)
    damp = torch.exp(-lead.abs())
    step = torch.where(
        lead > 0, (1 - damp) / (1 / mean_up + damp / mean_down), (damp - 1) / (damp / mean_up + 1 / mean_down)
    )
    return Evaluation(torch.where(sure, lead.sign(), 0.0), error.nan_to_num(math.inf, math.inf), step)


def step_by_nearest(s: Sums, reach_up: Tensor, reach_down: Tensor, q: Tensor) -> Tensor:
    """Newton with the value nearest to y treated exactly and the others linearised (φ < 2).

    With the nearest value at offset t, multiplicity k, and the others' F and slope at that value c and B, the
    center lies at t + sgn(c)·u^{1/q} where k·u + B·u^{1/q} = |c|. Units of the range.
    """
    span = reach_up + reach_down
    above, below = reach_up / span, reach_down / span
    f = s.above * above.pow(q) - s.below * below.pow(q)
    slope = torch.where(s.above > 0, s.above_slope * above.pow(q - 1), 0.0) + torch.where(
        s.below > 0, s.below_slope * below.pow(q - 1), 0.0
    )
    at_y = s.tied > 0
    sign = torch.where(s.nearest_above > 0, 1.0, -1.0)
    k = torch.where(at_y, s.tied, torch.where(s.nearest_above > 0, s.nearest_above, s.nearest_below))
    t = torch.where(at_y, 0.0, sign * s.nearest / span)
    safe = torch.where(at_y, 1.0, t.abs())
    others = (slope - torch.where(at_y, 0.0, k * safe.pow(q - 1))).clamp_min(0.0) * q
    c = f - torch.where(at_y, 0.0, k * sign * safe.pow(q)) - others * t
    goal = c.abs()
    u = torch.minimum(goal / k, (goal / others.clamp_min(torch.finfo(others.dtype).tiny)).pow(q))
    for _ in range(6):  # convex and increasing, started within a factor 2 of the root: quadratic from the first step
        u = (u - (k * u + others * u.pow(1 / q) - goal) / (k + others * u.pow(1 / q - 1) / q)).clamp_min(0.0)
    return span * (t + c.sign() * u.pow(1 / q))


def look(x: Tensor, weight: Tensor | None, groups: Grouping, ends: tuple[Tensor, Tensor]) -> Extent:
    """The statistics that need no solving. Where the weight is 0, x must hold some value of its group.

    ``ends``: the extremes of x, which are known already.
    """
    mass = groups.count(x) if weight is None else groups.sum(wide(weight))

    def mean(values: Tensor) -> Tensor:
        return wide(groups.sum(values if weight is None else values * weight)) / mass

    rough = mean(x).to(x.dtype)  # a second pass about it keeps the digits that an offset would cost
    centred = x - groups.expand(rough)
    return Extent(
        lowest=wide(ends[0]),
        highest=wide(ends[1]),
        mean=wide(rough) + mean(centred),
        mass=mass,
        lightest=None if weight is None else wide(groups.min(torch.where(weight > 0, weight, math.inf))),
    )


def solve(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, seen: Extent, sweeps: int | None = None
) -> Solution:
    """The center of every group for 1 < φ < ∞.

    ``sweeps=None`` goes on until the sign of F drowns in rounding, group by group. A number makes exactly that many
    sweeps, with no decision that depends on the data: the form to trace. Groups that hold NaN or Inf get NaN.
    """
    adaptive = sweeps is None
    eps = torch.finfo(x.dtype).eps
    exponent = float(phi) - 1 if not isinstance(phi, Tensor) else None
    q = torch.as_tensor(phi, dtype=seen.mean.dtype, device=x.device).expand_as(seen.mean) - 1
    q = torch.where(q >= 0, q, math.nan)  # where nothing could check φ, a wrong one must show
    lo, hi = seen.lowest, seen.highest
    span = hi - lo
    active = span.isfinite() & (span > 0) & q.isfinite() & (q > 0)
    y = torch.where(span.isfinite() & ~q.isnan(), seen.mean, math.nan)
    if adaptive and isinstance(groups, Axes) and x.shape[1] > 16 * _SUBSAMPLE:
        y = _start_from_sample(x, phi, weight, y)
    y = y.clamp(lo, hi)
    center, bound = y, torch.where(y.isfinite(), 0.0, math.nan)
    used = torch.zeros_like(y, dtype=torch.int64)
    widths = [span] * 3
    singular = adaptive and (exponent is None or exponent < 1)
    resolution = 2 * max(eps * eps, torch.finfo(y.dtype).eps)  # of y as the sweep sees it
    grain = max(eps * eps, 100 * smallest_distance()) * span  # nothing smaller is looked for next to a tie
    for k in range(1, (MAX_SWEEPS if sweeps is None else sweeps) + 1):
        if adaptive and not bool(active.any()):
            break
        head = wide(y.to(x.dtype))
        y = head + wide((y - head).to(x.dtype))  # the point as the sweep sees it
        up, down = (seen.highest - y).clamp_min(0.0), (y - seen.lowest).clamp_min(0.0)
        near = singular and k >= 4  # more passes over the data; most groups are done before
        order = q if exponent is None else exponent
        if adaptive and isinstance(groups, Axes):
            s = sweep_rows(x, weight, y, up, down, order, near, active[:, 0])
        else:
            s = sweep(x, weight, y, up, down, order, groups, near)
        e = evaluate(s, up, down, q, seen, eps)
        step = e.step
        if singular:
            close = (q < 1) & ((s.tied > 0) | (s.nearest < math.inf))
            step = torch.where(close, step_by_nearest(s, up, down, q), step)
        new_lo = torch.maximum(lo, torch.where(e.direction > 0, y, y - e.error))
        new_hi = torch.minimum(hi, torch.where(e.direction < 0, y, y + e.error))
        middle = 0.5 * (new_lo + new_hi)
        new_lo, new_hi = torch.minimum(new_lo, middle), torch.maximum(new_hi, middle)
        width = new_hi - new_lo
        least = resolution * y.abs() + grain
        step = torch.where((step.abs() < least) & (e.direction != 0), e.direction * least, step)  # close the bracket
        new_y = y + step
        usable = new_y.isfinite() & (new_y >= new_lo) & (new_y <= new_hi)
        if k > 3:
            usable &= (width <= 0.5 * widths[0]) | (e.direction == 0)
        new_y = torch.where(usable, new_y, middle)
        finished = (e.direction == 0) | (width <= 0.25 * eps * y.abs() + 2 * grain) | (new_y == y)
        lo, hi = torch.where(active, new_lo, lo), torch.where(active, new_hi, hi)
        center = torch.where(active, new_y, center)
        bound = torch.where(active, torch.maximum(hi - center, center - lo), bound)
        used = used + active
        widths = [*widths[1:], width]
        active = active & ~finished
        y = center
    return Solution(center, bound, used)


def _start_from_sample(x: Tensor, phi: float | Tensor, weight: Tensor | None, otherwise: Tensor) -> Tensor:
    """The center of a strided subsample of each row: it costs little and saves one or two sweeps over all the data."""
    stride = x.shape[1] // _SUBSAMPLE
    sample, sample_weight = x[:, ::stride], None if weight is None else weight[:, ::stride]
    groups = Axes((1,))
    seen = look(sample, sample_weight, groups, groups.extremes(sample))
    start = solve(sample, phi, sample_weight, groups, seen).center
    return torch.where(start.isfinite(), start, otherwise)
