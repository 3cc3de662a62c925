"""The two middle values of groups over several processes, exactly, in a few exchanges.

Every process sorts its own values. In each round it sends a few of those left in the bracket, evenly spaced, each with
the weight below it and the weight up to it. From these all processes narrow the bracket in the same way, by more than a
factor of 50 for two processes, until the values sent determine the result. There are two brackets per group, one for
each of the two middle values.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..grouping import Axes
from .arithmetic import power_of_two
from .moments import Moments

SENT = 128  # values per bracket and round
_MAX_ROUNDS = 80  # never reached: a round leaves at most one part in SENT/2, or is the last


def middle_values(
    x: Tensor, weight: Tensor | None, wanted: Tensor, seen: Moments, groups: Axes
) -> tuple[Tensor, Tensor]:
    """Lower and upper (weighted) median, ``[groups, 1]``; ends of the range for groups that are not ``wanted``.

    Args:
        x: ``[groups, members]`` of this process.
        weight: in units of the heaviest of all processes, float64.
        wanted: for which groups, ``[groups, 1]``.
        seen: moments of all values.
        groups: over processes.
    """
    wanted = wanted & (seen.mass > 0) & seen.mean.isfinite()
    own = _Sorted(torch.where(wanted, x, 0.0), weight)
    half = 0.5 * seen.mass * (1.0 if weight is None else power_of_two(seen.heaviest))
    # The cumulative weights that the lower and the upper median reach, with slack for the rounding of sums of weights.
    slack = 4 * torch.finfo(torch.float64).eps * seen.number * half
    low, high = (half, half + 0.25) if weight is None else (half - slack, half + slack)
    goal = torch.cat([low, high], 1)
    lo = torch.full_like(goal, -math.inf)
    hi = torch.where(wanted, seen.highest, 0.0).expand_as(goal).contiguous()
    done = ~wanted.expand_as(goal)
    for _ in range(_MAX_ROUNDS):
        if bool(done.all()):
            break
        lo, hi, done = _narrowed(groups.gather(own.sample(lo, hi)), goal, lo, hi, done)
    return hi[:, :1], hi[:, 1:]


class _Sorted:
    """The values of this process in order, and the weight up to each of them."""

    def __init__(self, x: Tensor, weight: Tensor | None) -> None:
        values, order = x.sort(dim=1)
        self.x = values.double().contiguous()
        nothing = torch.zeros(len(x), 1, dtype=torch.float64, device=x.device)
        sorted_weight = torch.ones_like(self.x) if weight is None else weight.gather(1, order)
        self.reached = torch.cat([nothing, sorted_weight.cumsum(1)], 1)  # cumulative weight, by the number of values

    def sample(self, lo: Tensor, hi: Tensor) -> Tensor:
        """Values in (lo, hi], evenly spaced and including the last, with the weight below and up to each; lo is first.

        ``[3, groups, brackets, SENT + 1]``. If there are no values, hi is sent, which adds nothing.
        """
        first = torch.searchsorted(self.x, lo, right=True)
        number = torch.searchsorted(self.x, hi, right=True) - first
        turn = torch.arange(1, SENT + 1, device=lo.device)
        place = first[..., None] + (number[..., None] * turn + SENT - 1) // SENT - 1
        some = (number > 0)[..., None]
        flat = torch.where(some, place, 0).flatten(1)
        if self.x.shape[1]:
            value = torch.where(some, self.x.gather(1, flat).view(place.shape), hi[..., None])
        else:
            value = hi[..., None].expand(place.shape)
        flat = value.reshape(len(value), -1)
        below, up_to = (
            self.reached.gather(1, torch.searchsorted(self.x, flat, right=right)).view(place.shape)
            for right in (False, True)
        )
        before = self.reached.gather(1, first)[..., None]
        value = torch.cat([lo[..., None], value], -1)
        return torch.stack([value, torch.cat([before, below], -1), torch.cat([before, up_to], -1)])


def _narrowed(parts: Tensor, goal: Tensor, lo: Tensor, hi: Tensor, done: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The brackets after a round, and which of them are finished; the value is then ``hi``."""
    value = parts[:, 0].contiguous()  # [processes, groups, brackets, SENT + 1]
    candidates = torch.cat(value.unbind(0), -1)
    least_up_to = most_up_to = most_below = torch.zeros_like(candidates)
    for own, below, up_to in zip(value, parts[:, 1], parts[:, 2], strict=True):
        behind = torch.searchsorted(own, candidates, right=True)  # how many values sent are up to a candidate
        before = torch.searchsorted(own, candidates, right=False)
        # The last value sent is the last one in the bracket.
        bound = torch.cat([below, up_to[..., -1:]], -1)
        at_least = up_to.gather(-1, (behind - 1).clamp_min(0))
        least_up_to = least_up_to + at_least
        most_up_to = most_up_to + torch.where(
            behind > before, at_least, bound.gather(-1, behind)
        )  # known exactly for a value that was sent
        most_below = most_below + bound.gather(-1, before)
    enough = least_up_to >= goal[..., None]
    new_hi = torch.where(enough, candidates, math.inf).amin(-1)
    new_lo = torch.where(most_up_to < goal[..., None], candidates, -math.inf).amax(-1)
    # Finished where the weight that can lie below the candidate is too small.
    at_end = (candidates == new_hi[..., None]) & (most_below < goal[..., None])
    ended = at_end.any(-1)
    new_lo, new_hi = torch.maximum(lo, new_lo), torch.minimum(hi, new_hi)
    return torch.where(done, lo, new_lo), torch.where(done, hi, new_hi), done | ended
