"""The spread of groups over several processes. With α and shift constant in a group, the rms needs only moments."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..grouping import Axes
from ..problem import Rule
from ..torch.gaussian import robust_factor
from ..torch.spread import mean_abs_factor
from .center import find_center
from .moments import Moments, exchange
from .source import ROWS, Source


class Spread(NamedTuple):
    """The spread and, if it is robust, the center of |z| with the numbers that backward needs; ``[groups, 1]``."""

    spread: Tensor
    middle: Tensor
    lower: Tensor
    upper: Tensor
    smallest: Tensor  # of |z|
    largest: Tensor
    floored: Tensor


def by_moments(seen: Moments, mean_z: Tensor, dtype: torch.dtype) -> Tensor | None:
    """mean z² is the variance of x plus (mean z)²; None where the squares over- or underflow."""
    limits = torch.finfo(dtype)
    usable = (seen.var > limits.tiny / limits.eps) & (seen.var < limits.max * limits.eps)
    equal = (seen.lowest == seen.highest) & (mean_z.abs() < math.sqrt(limits.max * limits.eps))
    if not bool((usable | equal | ~seen.mean.isfinite() | (seen.mass == 0)).all()):
        return None
    return (seen.var + mean_z * mean_z).sqrt()


def power_mean(z: Tensor, weight: Tensor | None, power: float, seen: Moments, groups: Axes) -> Tensor:
    """(mean |z|^q)^(1/q) in one exchange; z as rows. Each process sums in units of its own largest |z|."""
    size = z.abs() if weight is None else torch.where(weight > 0, z.abs(), 0.0)
    largest = total = torch.zeros(len(z), 1, dtype=torch.float64, device=z.device)
    if z.shape[1]:
        largest = ROWS.max(size).double()
        powers = (size.double() / torch.where(largest == 0, 1.0, largest)).pow(power)
        total = ROWS.sum(powers if weight is None else powers * weight.double())
    parts = groups.gather(torch.stack([largest, total])).unbind(0)
    top = functools.reduce(torch.maximum, [part[0] for part in parts])
    unit = torch.where(top == 0, 1.0, top)
    sums = [torch.where(part[0] == 0, 0.0, part[1] * (part[0] / unit).pow(power)) for part in parts]
    mean = functools.reduce(torch.add, sums) / torch.where(seen.mass > 0, seen.mass, 1.0)
    return torch.where(top == 0, 0.0, unit * mean.pow(1 / power))


def robust(sizes: Source, count: int, rule: Rule, groups: Axes, dtype: torch.dtype, can_read: bool) -> Spread:
    """The center of |z|, with a floor at a fraction of the mean |z|."""
    seen = exchange(sizes.measure(rule.spread_phi), rule.spread_phi, count, groups)
    found = find_center(sizes, rule.spread_phi, seen, groups, dtype, can_read)
    middle = found.center.to(dtype).double()
    spread = (robust_factor(rule.spread_phi) * middle).to(dtype).double()
    least = (rule.spread_floor * mean_abs_factor() * seen.mean).to(dtype).double()
    least = torch.where(seen.mass > 0, least, 0.0)
    return Spread(
        torch.maximum(spread, least),
        middle,
        found.lower,
        found.upper,
        seen.lowest,
        seen.highest,
        (least > spread).double(),
    )
