"""The certified search for the L^φ center of every group, for any data and any φ in (1, ∞): the step after a sweep.

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
Rounding is included: the computed P and N are within a factor 1 ± κ of the true ones, κ a few eps, so the sign of F is
trusted only when |F| > κ(P + N), and E grows by κ/q of its two terms. The center is known to lie in a bracket [lo, hi];
where that does not halve in three sweeps the next point is its middle, which makes the worst case logarithmic.

**End.** With no value within d ≥ 2E of y, one Newton step on F leaves at most 2|1−q|E²/d (q ≤ 3): by Taylor's theorem
½E² sup|F''|/|F'(y)|, where Σ|x−ξ|^(q−2) is at most 2^(2−q), or 1.5^(q−2), times Σ|x−y|^(q−2) ≤ W/d. Once that is below
the rounding error of F itself, the search is settled.

**Scale.** Each side is divided by its own extreme distance, so that no power over- or underflows for any φ. The point y
is a float64 number split into a value of x's dtype and a remainder: x − y keeps its digits under any offset.

csrc/search.h implements this search for the kernels. csrc/decide.h repeats this file operation by operation, with the
arithmetic of ``ops/joint/arithmetic.py``. A test feeds the same sums to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, overload

import torch
from torch import Tensor

from ..precision import wide

MAX_SWEEPS = 200


def smallest_distance() -> float:
    """The smallest |x − y| in units of the side's extreme: keeps Σω|r|^(q−1) finite in float32.

    A function, not a global, as all such numbers that a derivative reads: with ``torch.compile(dynamic=True)`` Dynamo
    makes a global float an input of the graph, and the second autograd.Function that reads it cannot reach it.
    """
    return 1e-30


class Arithmetic(NamedTuple):
    """The functions that compute logarithms and powers."""

    log: Callable[[Tensor], Tensor]
    exp: Callable[[Tensor], Tensor]

    def power(self, value: Tensor, exponent: float | Tensor) -> Tensor:
        """Non-negative numbers to a power that is not 0."""
        return self.exp(self.log(value) * exponent)


TORCH = Arithmetic(torch.log, torch.exp)


class Sums(NamedTuple):
    """The results of one sweep. Each side is in units of its own extreme distance."""

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


class Searches(NamedTuple):
    """One search per group, all in the widest dtype except ``active``. Same order as ``Column`` of csrc/decide.h."""

    q: Tensor
    lowest: Tensor  # of the values
    highest: Tensor
    mass: Tensor  # M
    lightest: Tensor  # smallest positive weight
    lo: Tensor  # the center lies between lo and hi
    hi: Tensor
    y: Tensor  # the point of the next sweep
    center: Tensor  # the best estimate
    bound: Tensor  # |true center − estimate| at most
    width_0: Tensor  # hi − lo three sweeps ago, two, one
    width_1: Tensor
    width_2: Tensor
    used: Tensor  # sweeps
    active: Tensor
    up: Tensor  # distances of the extremes from y
    down: Tensor

    @property
    def span(self) -> Tensor:
        """The range of the values."""
        return self.highest - self.lowest


def begin(
    phi: Tensor, lowest: Tensor, highest: Tensor, mass: Tensor, lightest: Tensor, start: Tensor, where: Tensor
) -> Searches:
    """Searches before their first sweep. Groups outside of ``where``, or with NaN or Inf, are never active."""
    q = torch.where(phi >= 1, phi - 1, math.nan)  # an invalid φ that could not be checked must give NaN
    span = highest - lowest
    active = where & span.isfinite() & (span > 0) & q.isfinite() & (q > 0)
    y = torch.where(span.isfinite() & ~q.isnan(), start, math.nan).clamp(lowest, highest)
    bound, zero = torch.where(y.isfinite(), 0.0, math.nan), torch.zeros_like(y)
    known = (q, lowest, highest, mass, lightest, lowest, highest, y, y, bound, span, span, span)
    return Searches(*known, zero, active, zero, zero)


def set_sweep_point(s: Searches, dtype: torch.dtype) -> Searches:
    """Searches ready for a sweep over values of this dtype: y rounded to what the sweep can represent."""
    head = wide(s.y.to(dtype))
    y = head + wide((s.y - head).to(dtype))
    return s._replace(y=y, up=(s.highest - y).clamp_min(0.0), down=(y - s.lowest).clamp_min(0.0))


def advance(s: Searches, sums: Sums, k: int, eps: float, adaptive: bool, arithmetic: Arithmetic = TORCH) -> Searches:
    """The searches after their k-th sweep, from the sums at y.

    ``eps``: of the dtype of the sweep. ``adaptive``: Python may read the numbers.
    """
    e = evaluate(s, sums, eps, arithmetic)
    y, grain = s.y, max(eps * eps, 100 * smallest_distance()) * s.span  # the finest step next to a tie
    resolution = 2 * max(eps * eps, torch.finfo(y.dtype).eps)  # of y in a sweep
    step = e.step
    if adaptive:
        close = s.active & ~e.settled & (s.q < 1) & ((sums.tied > 0) | ((sums.nearest < math.inf) & (k >= 5)))
        if bool(close.any()):
            step = torch.where(close, step_by_nearest(s, sums, arithmetic), step)
    lo = torch.maximum(s.lo, torch.where(e.direction > 0, y, y - e.error))
    hi = torch.minimum(s.hi, torch.where(e.direction < 0, y, y + e.error))
    middle = 0.5 * (lo + hi)
    lo, hi = torch.minimum(lo, middle), torch.maximum(hi, middle)
    width = hi - lo
    least = resolution * y.abs() + grain
    crawls = ~e.settled & (step.abs() < least) & (e.direction != 0)
    following = y + torch.where(crawls, e.direction * least, step)  # closes the bracket
    usable = following.isfinite() & (following >= lo) & (following <= hi)
    if k > 3:
        usable &= (width <= 0.5 * s.width_0) | (e.direction == 0) | e.settled
    following = torch.where(usable, following, middle)
    narrow = width <= 0.25 * eps * y.abs() + 2 * grain
    finished = e.settled | (e.direction == 0) | narrow | (following == y)
    bound = torch.maximum(hi - following, following - lo)
    bound = torch.where(e.settled & usable, torch.minimum(bound, e.rest), bound)
    moved = s._replace(lo=lo, hi=hi, y=following, center=following, bound=bound, used=s.used + 1)
    moved = moved._replace(width_0=s.width_1, width_1=s.width_2, width_2=width)
    kept = Searches(*[b if a is b else torch.where(s.active, a, b) for a, b in zip(moved, s, strict=True)])
    return kept._replace(active=s.active & ~finished)


@overload
def rounding_of_sums(q: float, eps: float) -> float: ...
@overload
def rounding_of_sums(q: Tensor, eps: float) -> Tensor: ...
def rounding_of_sums(q: float | Tensor, eps: float) -> float | Tensor:
    """Relative error of P and N: q times that of |x − y|, one pow, one cascade sum."""
    return eps * (2 * q + 16)


class Evaluation(NamedTuple):
    """What the sums at y say about the center: its direction, its largest possible distance, and the Newton step."""

    direction: Tensor  # +1 above y, −1 below, 0 where rounding error hides it
    error: Tensor  # |y − μ| at most
    step: Tensor
    settled: Tensor  # the step ends the search
    rest: Tensor  # largest possible distance of the center after such a step


def evaluate(s: Searches, sums: Sums, eps: float, arithmetic: Arithmetic = TORCH) -> Evaluation:
    """Direction, certificate and Newton step."""
    q, span, up, down = s.q, s.span, s.up, s.down
    below_2 = q < 1
    per_mass = torch.where(below_2, 2.0 / s.mass, 1.0)
    logs = arithmetic.log(torch.stack([sums.above, sums.below, up / span, down / span, per_mass]))
    log_above, log_below, far_up, far_down, shift = logs.unbind(0)
    log_up, log_down = far_up + (log_above + shift) / q, far_down + (log_below + shift) / q
    lead = log_up - log_down  # ln(P/N)/q
    size_up, size_down, damp, fell, share_up, share_down = arithmetic.exp(
        torch.stack([log_up, log_down, -lead.abs(), -q * lead.abs(), (q - 1) * far_up, (q - 1) * far_down])
    ).unbind(0)
    size_up, size_down = span * size_up, span * size_down
    # The rounding of P and N, and of their logarithms in float64.
    kappa = rounding_of_sums(q, eps) - torch.finfo(q.dtype).eps * q * (far_up + far_down).clamp_min(-1e3)
    sure = (1 - fell) / (1 + fell) > kappa  # |P − N| > κ(P + N)
    mean_up, mean_down = up * sums.above / sums.above_slope, down * sums.below / sums.below_slope
    grows_up, grows_down = ((a / b).nan_to_num(0.0, 0.0, 0.0) for a, b in ((size_up, mean_up), (size_down, mean_down)))
    growing = torch.where(lead > 0, grows_down, grows_up)
    growing = torch.where(sure, growing, torch.minimum(grows_up, grows_down))  # on whichever side the center lies
    slope = torch.where(below_2, 2.0, arithmetic.power(s.lightest, 1 / q) + growing)
    error = ((size_up - size_down).abs() + kappa / q * (size_up + size_down)) / slope + smallest_distance() * span
    error = error.nan_to_num(math.inf, math.inf)
    step = torch.where(
        lead > 0, (1 - damp) / (1 / mean_up + damp / mean_down), (damp - 1) / (damp / mean_up + 1 / mean_down)
    )
    # F and its slope, in units of the span.
    above_slope = torch.where(sums.above > 0, sums.above_slope * share_up, 0.0)
    below_slope = torch.where(sums.below > 0, sums.below_slope * share_down, 0.0)
    above = torch.where(sums.above > 0, sums.above * share_up * (up / span), 0.0)
    below = torch.where(sums.below > 0, sums.below * share_down * (down / span), 0.0)
    all_slope = q * (above_slope + below_slope)
    distance = torch.where(sums.tied > 0, 0.0, sums.nearest)
    noise = kappa * (above + below) * span / all_slope
    curve = 2 * (1 - q).abs() * error * error
    settled = (distance >= 2 * error) & (curve <= noise * distance) & (q <= 3) & distance.isfinite()
    newton = span * (above - below) / all_slope
    rest = curve / distance + noise + kappa * newton.abs()  # the last: rounding of the slope
    direction = torch.where(sure, lead.sign(), 0.0)
    return Evaluation(direction, error, torch.where(settled, newton, step), settled, rest)


def step_by_nearest(s: Searches, sums: Sums, arithmetic: Arithmetic = TORCH) -> Tensor:
    """Newton with the value nearest to y treated exactly and the others linearised (φ < 2).

    With the nearest value at offset t, multiplicity k, and the others' F and slope at that value c and B, the
    center lies at t + sgn(c)·u^{1/q} where k·u + B·u^{1/q} = |c|. Units of the range.
    """
    q, up, down, power = s.q, s.up, s.down, arithmetic.power
    span = up + down
    above, below = power(up / span, q), power(down / span, q)
    f = sums.above * above - sums.below * below
    slope = torch.where(sums.above > 0, sums.above_slope * above * (span / up), 0.0) + torch.where(
        sums.below > 0, sums.below_slope * below * (span / down), 0.0
    )
    at_y = sums.tied > 0
    sign = torch.where(sums.nearest_above > 0, 1.0, -1.0)
    nearest = torch.where(sums.nearest_above > 0, sums.nearest_above, sums.nearest_below)
    k = torch.where(at_y, sums.tied, nearest)
    t = torch.where(at_y, 0.0, sign * sums.nearest / span)
    safe = torch.where(at_y, 1.0, t.abs())
    own = power(safe, q)
    others = (slope - torch.where(at_y, 0.0, k * own / safe)).clamp_min(0.0) * q
    c = f - torch.where(at_y, 0.0, k * sign * own) - others * t
    goal = c.abs()
    u = torch.minimum(goal / k, power(goal / others.clamp_min(torch.finfo(q.dtype).tiny), q))
    for _ in range(6):  # convex and increasing, started within a factor 2 of the root: quadratic from the first step
        root = power(u, 1 / q)
        u = (u - (k * u + others * root - goal) / (k + torch.where(u > 0, others * root / u, 0.0) / q)).clamp_min(0.0)
    return span * (t + c.sign() * power(u, 1 / q))
