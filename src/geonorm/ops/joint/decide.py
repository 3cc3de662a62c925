"""What several processes make alike of the sums of a sweep.

As ``ops/torch/solver.py``, which has the mathematics, and csrc/search.h, for one process. csrc/decide.h is this file in
C++, operation by operation, to the last bit: the four must be changed together. All is made of the arithmetic of
``arithmetic.py``, in the order of ranks.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..torch.solver import Sums, smallest_distance
from .arithmetic import exp, log, power

# One search per group, as a row: ``Column`` of csrc/decide.h. Up and down: distances of the extremes from y.
COLUMNS = (
    "Q", "LOWEST", "HIGHEST", "TOTAL", "LIGHTEST", "LO", "HI", "Y", "FOUND", "WITHIN", "WIDTH_0", "WIDTH_1", "WIDTH_2",
    "USED", "ACTIVE", "UP", "DOWN",
)  # fmt: skip
(
    Q, LOWEST, HIGHEST, TOTAL, LIGHTEST, LO, HI, Y, FOUND, WITHIN, WIDTH_0, WIDTH_1, WIDTH_2, USED, ACTIVE, UP, DOWN,
) = range(len(COLUMNS))  # fmt: skip
DOUBLE_EPS = torch.finfo(torch.float64).eps


class Evaluation(NamedTuple):
    """What the sums at a point say of the center; see ``solver.Evaluation`` and ``Search`` in csrc/search.h."""

    direction: Tensor  # +1 above, −1 below, 0 where rounding hides it
    error: Tensor  # distance of the center at most
    step: Tensor
    settled: Tensor  # the step ends the search
    rest: Tensor  # distance of the center at most, after such a step


def advance(rows: Tensor, parts: Tensor | None, k: int, wide: bool, adaptive: bool) -> bool:
    """Searches after their k-th sweep, in place; whether any goes on, which only adaptive ones may ask.

    Args:
        rows: ``[groups, columns]``.
        parts: the sums of all processes, ``[processes, sums, groups]``; None for k = 0: searches find their places.
        k: how many sweeps there were.
        wide: computing in float64, not float32.
        adaptive: searches look at single values where that helps.
    """
    if parts is not None:
        each = [Sums(*part.unsqueeze(-1).unbind(0)) for part in parts]
        _advance(rows, functools.reduce(Sums.merge, each), k, wide, adaptive)
    y = rows[:, Y]
    if not wide:
        head = y.float().double()
        y = head + (y - head).float().double()  # the point as a sweep sees it
    rows[:, Y] = y
    rows[:, UP], rows[:, DOWN] = (rows[:, HIGHEST] - y).clamp_min(0.0), (y - rows[:, LOWEST]).clamp_min(0.0)
    return adaptive and bool((rows[:, ACTIVE] > 0).any())


def _advance(rows: Tensor, s: Sums, k: int, wide: bool, adaptive: bool) -> None:
    """The next points from the sums at y."""
    eps = torch.finfo(torch.float64 if wide else torch.float32).eps
    q, lowest, highest, mass, lightest, lo, hi, y, *_ = rows[:, :, None].unbind(1)
    up, down, active = rows[:, UP, None], rows[:, DOWN, None], rows[:, ACTIVE, None] > 0
    span = highest - lowest
    resolution = 2 * max(eps * eps, DOUBLE_EPS)  # of y as a sweep sees it
    grain = max(eps * eps, 100 * smallest_distance()) * span  # nothing smaller is looked for next to a tie
    e = evaluate(s, up, down, q, span, mass, lightest, eps)
    step = e.step
    if adaptive:
        close = active & ~e.settled & (q < 1) & ((s.tied > 0) | (k >= 5))
        if bool(close.any()):
            step = torch.where(close, _step_by_nearest(s, up, down, q), step)
    new_lo = torch.maximum(lo, torch.where(e.direction > 0, y, y - e.error))
    new_hi = torch.minimum(hi, torch.where(e.direction < 0, y, y + e.error))
    middle = 0.5 * (new_lo + new_hi)
    new_lo, new_hi = torch.minimum(new_lo, middle), torch.maximum(new_hi, middle)
    width = new_hi - new_lo
    least = resolution * y.abs() + grain
    crawls = ~e.settled & (step.abs() < least) & (e.direction != 0)
    next_y = y + torch.where(crawls, e.direction * least, step)
    usable = next_y.isfinite() & (next_y >= new_lo) & (next_y <= new_hi)
    if k > 3:
        usable &= (width <= 0.5 * rows[:, WIDTH_0, None]) | (e.direction == 0) | e.settled
    next_y = torch.where(usable, next_y, middle)
    narrow = width <= 0.25 * eps * y.abs() + 2 * grain
    finished = e.settled | (e.direction == 0) | narrow | (next_y == y)
    bound = torch.maximum(new_hi - next_y, next_y - new_lo)
    bound = torch.where(e.settled & usable, torch.minimum(bound, e.rest), bound)
    found = (new_lo, new_hi, next_y, next_y, bound, *rows[:, [WIDTH_1, WIDTH_2], None].unbind(1), width)
    new = torch.cat([*found, rows[:, USED, None] + 1, (~finished).double()], 1)
    rows[:, LO : ACTIVE + 1] = torch.where(active, new, rows[:, LO : ACTIVE + 1])


def evaluate(
    s: Sums, up: Tensor, down: Tensor, q: Tensor, span: Tensor, mass: Tensor, lightest: Tensor, eps: float
) -> Evaluation:
    """Direction, certificate and Newton step from the sums at y; ``up`` and ``down`` are the units of its two sides."""
    below_2 = q < 1
    mass = torch.where(below_2, 2.0 / mass, 1.0)
    log_above, log_below, far_up, far_down, shift = log(
        torch.stack([s.above, s.below, up / span, down / span, mass])
    ).unbind(0)
    log_up, log_down = far_up + (log_above + shift) / q, far_down + (log_below + shift) / q
    lead = log_up - log_down  # ln(P/N)/q
    size_up, size_down, damp, fell, share_up, share_down = exp(
        torch.stack([log_up, log_down, -lead.abs(), -q * lead.abs(), (q - 1) * far_up, (q - 1) * far_down])
    ).unbind(0)
    size_up, size_down = span * size_up, span * size_down
    kappa = eps * (2 * q + 16) - DOUBLE_EPS * q * (far_up + far_down).clamp_min(-1e3)
    sure = (1 - fell) / (1 + fell) > kappa  # |P − N| > κ(P + N)
    mean_up, mean_down = up * s.above / s.above_slope, down * s.below / s.below_slope
    grows_up, grows_down = ((a / b).nan_to_num(0.0, 0.0, 0.0) for a, b in ((size_up, mean_up), (size_down, mean_down)))
    growing = torch.where(lead > 0, grows_down, grows_up)
    growing = torch.where(sure, growing, torch.minimum(grows_up, grows_down))  # on whichever side the center lies
    slope = torch.where(below_2, 2.0, power(lightest, 1 / q) + growing)
    error = ((size_up - size_down).abs() + kappa / q * (size_up + size_down)) / slope + smallest_distance() * span
    error = error.nan_to_num(math.inf, math.inf)
    step = torch.where(
        lead > 0, (1 - damp) / (1 / mean_up + damp / mean_down), (damp - 1) / (damp / mean_up + 1 / mean_down)
    )
    direction = torch.where(sure, lead.sign(), 0.0)
    # One Newton step on F ends the search where no value is near; Search::settle in csrc/search.h says why.
    above_slope = torch.where(s.above > 0, s.above_slope * share_up, 0.0)
    below_slope = torch.where(s.below > 0, s.below_slope * share_down, 0.0)
    above, below = s.above * share_up * (up / span), s.below * share_down * (down / span)
    above, below = torch.where(s.above > 0, above, 0.0), torch.where(s.below > 0, below, 0.0)
    all_slope = q * (above_slope + below_slope)
    distance = torch.where(s.tied > 0, 0.0, s.nearest)
    noise = kappa * (above + below) * span / all_slope
    curve = 2 * (1 - q).abs() * error * error
    settled = (distance >= 2 * error) & (curve <= noise * distance) & (q <= 3) & distance.isfinite()
    newton = span * (above - below) / all_slope
    rest = curve / distance + noise + kappa * newton.abs()
    return Evaluation(direction, error, torch.where(settled, newton, step), settled, rest)


def _step_by_nearest(s: Sums, up: Tensor, down: Tensor, q: Tensor) -> Tensor:
    """Newton with the value nearest to y treated exactly and the others linearised, as ``solver.step_by_nearest``."""
    span = up + down
    above, below = power(up / span, q), power(down / span, q)
    f = s.above * above - s.below * below
    slope = torch.where(s.above > 0, s.above_slope * above * (span / up), 0.0) + torch.where(
        s.below > 0, s.below_slope * below * (span / down), 0.0
    )
    at_y = s.tied > 0
    sign = torch.where(s.nearest_above > 0, 1.0, -1.0)
    k = torch.where(at_y, s.tied, torch.where(s.nearest_above > 0, s.nearest_above, s.nearest_below))
    t = torch.where(at_y, 0.0, sign * s.nearest / span)
    safe = torch.where(at_y, 1.0, t.abs())
    own = power(safe, q)
    others = (slope - torch.where(at_y, 0.0, k * own / safe)).clamp_min(0.0) * q
    c = f - torch.where(at_y, 0.0, k * sign * own) - others * t
    goal = c.abs()
    u = torch.minimum(goal / k, power(goal / others.clamp_min(1e-300), q))
    for _ in range(6):
        root = power(u, 1 / q)
        u = (u - (k * u + others * root - goal) / (k + torch.where(u > 0, others * root / u, 0.0) / q)).clamp_min(0.0)
    return span * (t + c.sign() * power(u, 1 / q))
