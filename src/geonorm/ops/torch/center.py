"""The center of every group in plain torch: closed forms at φ = 1, 2 and ∞, the certified solver elsewhere.

On the CPU, where Python may read the data, the solver stops group by group once only rounding error is left. On other
devices a read would wait for the device, and a traced graph has no data: there it makes a fixed number of sweeps
(``fixed_sweeps``), and still computes a bound on the error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import can_read_values, check_exponent
from ..grouping import Axes, Grouping, Segments, power_of_two, unit_weight
from ..precision import wide, wide_dtype
from ..problem import statistics_shape
from .median import middle_values
from .solver import Solution, measure_extent, solve


class Center(NamedTuple):
    """Per group: the center in x's dtype, a bound on its error (float64), sweeps made, and the two values whose
    midpoint is the center: the middle ones at φ = 1, the extremes at φ = ∞, the center itself elsewhere."""

    center: Tensor
    bound: Tensor
    sweeps: Tensor
    lower: Tensor
    upper: Tensor


def center(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
) -> Center:
    """The center of every group. Statistics keep the reduced axes with size 1.

    Args:
        x: float32 or float64.
        phi: a number or a tensor that broadcasts to the statistics.
        weight: non-negative, of x's shape.
        groups: in this process.
        sweeps: a fixed number of sweeps instead of the adaptive stop.
        phi_strictly_inside: φ is known to lie in (1, ∞); saves a traced graph the median that φ = 1 would need.
    """
    shape = statistics_shape(x.shape, groups)
    if isinstance(groups, Segments):
        features = math.prod(x.shape[1:])
        flat = [groups.number, features]

        def lay_out(value: Tensor) -> Tensor:
            return value.reshape(value.shape[0], features)
    else:
        kept = [d for d in range(x.dim()) if d not in groups.dims]
        rows = math.prod([x.shape[d] for d in kept])
        members = math.prod([x.shape[d] for d in groups.dims])
        flat = [rows, 1]

        def lay_out(value: Tensor) -> Tensor:
            return value.permute(*kept, *groups.dims).reshape(rows, members)

    power = phi
    if isinstance(phi, Tensor):  # one number stays one number
        power = phi.reshape(()) if phi.numel() == 1 else phi.expand(shape).reshape(flat)
        if can_read_values(phi):
            check_exponent(phi)
            power = float(phi) if phi.numel() == 1 else power
    if sweeps is None and not can_read_values(x):
        sweeps = fixed_sweeps(power)
    laid_out = groups if isinstance(groups, Segments) else Axes((1,))
    found = _find(lay_out(x), power, None if weight is None else lay_out(weight), laid_out, sweeps, phi_strictly_inside)
    return Center(*[value.reshape(shape) for value in found])


def fixed_sweeps(phi: float | Tensor) -> int:
    """How many sweeps to make where the data cannot be read: enough for 1e-6 standard deviations on adversarial data.

    The closer φ is to 1, the steeper F is next to a tie, and the bracket may have to be halved.
    """
    if isinstance(phi, Tensor):
        return 32
    return 8 if phi >= 1.75 else 16 if phi >= 1.6 else 24 if phi >= 1.5 else 32


def _find(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None,
    phi_strictly_inside: bool,
) -> Center:
    """The center of every row, ``x[groups, members]``, or of every segment, ``x[members, features]``."""
    decide = can_read_values(x, weight, phi if isinstance(phi, Tensor) else None)
    if weight is not None:
        present = weight > 0
        x = torch.where(present, x, groups.expand(groups.min(torch.where(present, x, math.inf))))
        weight, _ = unit_weight(weight, groups, wide_dtype(x.device))
    exact_weight, weight = weight, None if weight is None else weight.to(x.dtype)
    given, (low, high) = x, groups.extremes(x)
    rescale = _rescale(low, high)
    if not decide or bool((rescale != 1).any()):
        x = x * groups.expand(rescale)
    seen = measure_extent(x, weight, groups, (low * rescale, high * rescale))

    nan = torch.full_like(seen.mean, math.nan)
    result = Solution(nan, nan, torch.zeros_like(nan, dtype=torch.int64))

    def at(value: float) -> Tensor | None:
        """A mask of the groups where φ is this value; None if there are none."""
        if not isinstance(phi, Tensor):
            return torch.ones_like(nan, dtype=torch.bool) if phi == value else None
        if phi_strictly_inside and value != 2:
            return None
        chosen = (phi == value).expand_as(nan)
        return chosen if not decide or bool(chosen.any()) else None

    def weighted(values: Tensor) -> Tensor:
        return values if weight is None else values * weight

    if isinstance(phi, Tensor) or phi not in (1, 2, math.inf):
        result = solve(x, phi, weight, groups, seen, sweeps)
    if (where := at(2)) is not None:
        deviation = wide(groups.sum(weighted((x - groups.expand(seen.mean.to(x.dtype))).abs()))) / seen.mass
        rounding = 32 * torch.finfo(x.dtype).eps * deviation
        result = Solution(
            torch.where(where, seen.mean, result.center),
            torch.where(where, rounding, result.bound),
            torch.where(where, 0, result.sweeps),
        )
    unscale = 1 / wide(rescale)
    result = Solution(result.center * unscale, result.bound * unscale, result.sweeps)
    lower = upper = result.center
    if (where := at(1)) is not None:
        middle = middle_values(given, exact_weight, groups)
        result, lower, upper = _midpoint(where, *middle, result, lower, upper)
    if (where := at(math.inf)) is not None:
        result, lower, upper = _midpoint(where, low, high, result, lower, upper)
    return _finish(x, result, lower, upper, seen.mass == 0)


def _midpoint(
    where: Tensor, low: Tensor, high: Tensor, result: Solution, lower: Tensor, upper: Tensor
) -> tuple[Solution, Tensor, Tensor]:
    """The exact center of groups whose center is the midpoint of two of their values."""
    low, high = wide(low), wide(high)
    center = torch.where(where, 0.5 * low + 0.5 * high, result.center)
    exact = Solution(center, torch.where(where, 0.0, result.bound), torch.where(where, 0, result.sweeps))
    return exact, torch.where(where, low, lower), torch.where(where, high, upper)


def _rescale(low: Tensor, high: Tensor) -> Tensor:
    """A power of two per group that brings magnitudes unsafe for float arithmetic to about 1; 1 for all others."""
    largest = wide(torch.maximum(high, -low))
    limit = {torch.float32: 2.0**60, torch.float64: 2.0**500}[low.dtype]
    unsafe = (largest > limit) | (largest < 1 / limit)
    factor = power_of_two(largest).clamp(max=torch.finfo(low.dtype).max / 2)
    return torch.where(unsafe, factor, 1.0).to(low.dtype)


def _finish(x: Tensor, result: Solution, lower: Tensor, upper: Tensor, empty: Tensor) -> Center:
    """The result in the data's dtype; the bound includes that last rounding. Empty groups get 0."""
    eps, tiny = torch.finfo(x.dtype).eps, torch.finfo(x.dtype).tiny
    center, lower, upper = (torch.where(empty, 0.0, value) for value in (result.center, lower, upper))
    bound = torch.where(empty, 0.0, result.bound + eps * (center.abs() + tiny))
    sweeps = torch.where(empty, 0, result.sweeps)
    return Center(center.to(x.dtype), bound, sweeps, lower.to(x.dtype), upper.to(x.dtype))
