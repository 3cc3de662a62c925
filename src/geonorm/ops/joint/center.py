"""The center of groups over several processes: closed forms at φ = 1, 2 and ∞, the certified search elsewhere."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..grouping import Axes
from ..torch.center import Center, fixed_sweeps
from ..torch.solver import Solution
from .arithmetic import power_of_two
from .median import middle_values
from .moments import Moments
from .search import search
from .source import Source


def is_searched(phi: float | Tensor) -> bool:
    """Whether the center of some group may need the search; the values of a tensor φ are not examined."""
    return isinstance(phi, Tensor) or phi not in (1, 2, math.inf)


def find_center(
    source: Source,
    phi: float | Tensor,
    seen: Moments,
    groups: Axes,
    dtype: torch.dtype,
    can_read: bool,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
) -> Center:
    """The center of every group and its bound, sweeps and ends, ``[groups, 1]`` in float64.

    Args:
        source: the values of this process.
        phi: a number, or any tensor: ``seen.phi`` then has the values.
        seen: moments of all values.
        groups: over processes.
        dtype: the computing dtype.
        can_read: whether Python may read the data; if not, the number of sweeps is fixed.
        sweeps, phi_strictly_inside: as in ``ops.torch.center``.
    """
    broken = ~seen.mean.isfinite()
    mean = seen.mean.clamp(seen.lowest, seen.highest)
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    # |mean − its computed value| is a few roundings of the deviations.
    deviation = torch.where(seen.var.isfinite(), seen.var.sqrt(), seen.highest - seen.lowest)
    found = Solution(mean, 32 * eps * deviation, torch.zeros_like(mean, dtype=torch.int64))
    if is_searched(phi):
        solved = _search(source, phi, seen, groups, dtype, can_read, sweeps)
        at_mean = seen.phi == 2
        found = Solution(*[torch.where(at_mean, one, other) for one, other in zip(found, solved, strict=True)])
    center, bound, used = found
    lower = upper = center
    if phi == 1 if not isinstance(phi, Tensor) else not phi_strictly_inside:
        wanted = seen.phi == 1
        if not can_read or bool(wanted.any()):
            middle = middle_values(*source.rows(seen), wanted, seen, groups)
            lower, upper = (torch.where(wanted, value, end) for value, end in zip(middle, (lower, upper), strict=True))
    at_ends = seen.phi == math.inf
    lower, upper = torch.where(at_ends, seen.lowest, lower), torch.where(at_ends, seen.highest, upper)
    exact = at_ends | (seen.phi == 1)
    center = torch.where(exact, 0.5 * lower + 0.5 * upper, center)
    bound, used = torch.where(exact, 0.0, bound), torch.where(exact, 0, used)
    empty = seen.mass == 0

    def finished(value: Tensor) -> Tensor:
        return torch.where(broken, math.nan, torch.where(empty, 0.0, value))

    bound = bound + eps * (center.abs() + tiny)
    return Center(
        finished(center), finished(bound), torch.where(broken | empty, 0, used), *map(finished, (lower, upper))
    )


def _search(
    source: Source,
    phi: float | Tensor,
    seen: Moments,
    groups: Axes,
    dtype: torch.dtype,
    can_read: bool,
    sweeps: int | None,
) -> Solution:
    """The search, with values rescaled where float arithmetic would be unsafe."""
    if sweeps is None and not can_read:
        sweeps = fixed_sweeps(phi)
    largest = torch.maximum(seen.highest, -seen.lowest)
    limit = 2.0**60 if dtype == torch.float32 else 2.0**500
    unsafe = (largest > limit) | (largest < 1 / limit)
    if can_read and not bool((unsafe & (largest > 0)).any()):
        return search(source, _in_units(seen), groups, dtype, sweeps, None)
    factor = torch.where(unsafe, power_of_two(largest).clamp(max=torch.finfo(dtype).max / 2), 1.0)
    scaled = _in_units(seen)._replace(
        mean=seen.mean * factor,
        lowest=seen.lowest * factor,
        highest=seen.highest * factor,
        start=torch.where(unsafe, seen.mean, seen.start) * factor,
    )
    solved = search(source, scaled, groups, dtype, sweeps, factor)
    return Solution(solved.center / factor, solved.bound / factor, solved.sweeps)


def _in_units(seen: Moments) -> Moments:
    """The moments with weights in units of the heaviest, as the sweeps use them."""
    unit = power_of_two(seen.heaviest)
    return seen._replace(mass=seen.mass * unit, lightest=seen.lightest * unit)
