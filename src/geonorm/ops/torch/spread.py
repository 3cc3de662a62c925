"""Power means of the distance: how far a group of values lies from 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..checks import can_read_values
from ..grouping import Grouping, unit_weight


def mean_abs_factor() -> float:
    """√(π/2): standard over mean absolute deviation of normal data. A function: see ``search.smallest_distance``."""
    return 1.2533141373155001


def power_mean(z: Tensor, power: float, weight: Tensor | None, groups: Grouping) -> Tensor:
    """(mean |z|^q)^(1/q), in units of the largest |z|, so that powers neither overflow nor underflow."""
    size = z.abs()
    if power == math.inf:
        return _nan_for_invalid_weights(groups.max(size).clamp_min(0.0), weight, groups)  # an empty segment has none
    largest = groups.max(size.detach())
    some = ~(largest <= 0)  # true for NaN, which must come out as NaN
    unit = torch.where(some, largest, 1.0)
    ratio = size / groups.expand(unit)
    powers = ratio if power == 1 else ratio.pow(power)
    unit_weights = None if weight is None else unit_weight(weight, groups, z.dtype)[0]
    mass = (groups.count(z) if unit_weights is None else groups.sum(unit_weights)).to(z.dtype)
    mean = groups.sum(powers if unit_weights is None else powers * unit_weights) / torch.where(mass > 0, mass, 1.0)
    if power != 1:
        mean = torch.where(some, mean, 1.0).pow(1 / power)  # the root's slope at 0 is infinite
    return _nan_for_invalid_weights(torch.where(some, unit * mean, 0.0), weight, groups)


def _nan_for_invalid_weights(result: Tensor, weight: Tensor | None, groups: Grouping) -> Tensor:
    """The result, with NaN for groups with invalid weights if those could not be checked before."""
    if weight is None or can_read_values(weight):
        return result
    return torch.where(~(groups.min(weight) >= 0), math.nan, result)
