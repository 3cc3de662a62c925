"""The first exchange: moments, extremes and numbers of values, and a guess of the center from every process."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..grouping import Axes, TooFewValues

MEAN, SQUARES, LOWEST, HIGHEST, MASS, HEAVIEST, LIGHTEST, START, PHI = range(9)


class Moments(NamedTuple):
    """Moments of every group over all processes, float64, ``[groups, 1]``; bit for bit the same in all processes."""

    mean: Tensor  # NaN for a group with a value that is not finite, in any process
    var: Tensor
    lowest: Tensor
    highest: Tensor
    mass: Tensor
    heaviest: Tensor  # weight; 1 without weights
    lightest: Tensor  # weight above 0
    start: Tensor  # where the search for the center starts
    phi: Tensor  # from the first process: a φ computed from a parameter may differ in the last digit
    number: Tensor  # values per group, whatever their weight


def empty_part(groups: int, device: torch.device) -> Tensor:
    """The part of a process without values."""
    found = torch.zeros(groups, 9, dtype=torch.float64, device=device)
    found[:, [LOWEST, LIGHTEST]], found[:, HIGHEST] = math.inf, -math.inf
    return found


def exchange(here: Tensor, phi: float | Tensor, count: int, groups: Axes) -> Moments:
    """The moments over all processes from those of each, in one collective.

    Args:
        here: ``[groups, 9]``, from ``measure`` of a source.
        phi: exponent of the center.
        count: values in each group in this process, whatever their weight.
        groups: over processes.
    """
    here[:, PHI] = phi.reshape(-1) if isinstance(phi, Tensor) else phi
    header = torch.full((1, 9), float(count), dtype=torch.float64, device=here.device)
    parts = groups.gather(torch.cat([here, header])).unbind(0)
    total = sum(part[-1, 0] for part in parts)
    assert isinstance(total, Tensor)
    if groups.fewest and int(total) < groups.fewest:
        raise TooFewValues(int(total))
    return _merged([part[:-1] for part in parts], total)


def _merged(parts: list[Tensor], count: Tensor) -> Moments:
    """The moments combined by Chan's formula, in the order of ranks."""
    columns = [part[:, :, None].unbind(1) for part in parts]

    def over(column: int, how: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return functools.reduce(how, [part[column] for part in columns])

    mean, squares, mass = columns[0][MEAN], columns[0][SQUARES], columns[0][MASS]
    pull = columns[0][START] * mass
    for part in columns[1:]:
        total = mass + part[MASS]
        per = torch.where(total > 0, total, 1.0)
        delta = part[MEAN] - mean
        mean = mean + delta * (part[MASS] / per)
        squares = squares + part[SQUARES] + delta * delta * (mass * (part[MASS] / per))
        mass = total
        pull = pull + part[START] * part[MASS]
    per = torch.where(mass > 0, mass, 1.0)
    mean = torch.where(mean.isfinite(), mean, math.nan)
    start = pull / per
    return Moments(
        mean,
        squares / per,
        over(LOWEST, torch.minimum),
        over(HIGHEST, torch.maximum),
        mass,
        over(HEAVIEST, torch.maximum),
        over(LIGHTEST, torch.minimum),
        torch.where(start.isfinite(), start, mean),
        columns[0][PHI],
        count,
    )
