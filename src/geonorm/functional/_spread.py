"""How far a group of values lies from a point: power means of the distance, and a robust one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops import Axes, Grouping, can_look, check_values, unit_weight
from ._arguments import about_point, check_floor, floating, per_group, reduced_dims, spread_power, weights
from ._gaussian import robust_factor
from ._implicit import implicit_center

_LARGEST_ROBUST_PHI = 100.0


def mean_abs_factor() -> float:
    """√(π/2): deviation over mean absolute deviation of normal data. A function, as ``solver.smallest_distance``."""
    return 1.2533141373155001


def spread(
    x: Tensor,
    kind: str | float = "rms",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    about: float | Tensor | None = None,
    weight: Tensor | None = None,
    phi: float = 1.5,
    floor: float = 0.05,
) -> Tensor:
    """The size of the deviations z = x − a from a point a, one number per group.

        s(z) = (Σ ω_i |z_i|^q / Σ ω_i)^(1/q)                     power mean
        s(z) = max(k_φ · c_φ(|z|), f · √(π/2) · mean|z|)         robust; c_φ is the center

    The robust spread is the L^φ center of the deviations, scaled so that normal data give their standard deviation.
    It is much less sensitive to outliers than rms, never immune: one outlier A among m values adds about A/m² at
    φ=1.5, A/√m to the rms. Where more than half of the deviations are 0 it would collapse; the floor f keeps it
    above a share of the mean deviation.

    Every kind is exact for values of any magnitude. A group of zeros has the spread 0 and no gradient. Half
    precision is computed in float32.

    Args:
        x: values, of a floating-point dtype.
        kind: ``"rms"`` (q=2), ``"mean_abs"`` (q=1), ``"max_abs"`` (q=∞), an exponent q in [1, ∞], or ``"robust"``.
        dim: dimension or dimensions to reduce; all by default.
        keepdim: keep the reduced dimensions with size 1.
        about: the point a, a number or a tensor that broadcasts over the kept dimensions; 0 by default.
        weight: non-negative weights or a mask that broadcasts to ``x``; entries with weight 0 are ignored.
            A group in which all are 0 raises, or gives 0 where nobody may look at the weights, as in ``center``.
        phi: the exponent of the robust spread, from 1 (median absolute deviation) to 100.
        floor: f of the robust spread; 0 turns it off.

    Shape:
        - x: any; output: the kept dimensions, or all with the reduced ones of size 1.

    Examples:

        >>> import torch
        >>> from geonorm.functional import spread
        >>> x = torch.cat([torch.linspace(-2, 2, 99), torch.tensor([1000.0])])
        >>> [round(spread(x, kind).item(), 1) for kind in ("rms", "mean_abs", "max_abs", "robust")]
        [100.0, 11.0, 1000.0, 1.8]
    """
    values = floating(x)
    dims = reduced_dims(values, dim)
    share = weights(weight, values)
    check_floor(floor)
    point = about_point(about)
    if isinstance(point, Tensor):
        point = per_group(point, values.shape, dims, "about").to(values.dtype)
    values = values - point
    if not x.dim():
        values, dims, share = values.reshape(1), (0,), None if share is None else share.reshape(1)
    result = spread_of(values, kind, share, Axes(dims), phi, floor).to(x.dtype)
    return result if keepdim and x.dim() else result.reshape([n for d, n in enumerate(x.shape) if d not in dims])


def spread_of(
    z: Tensor, kind: str | float, weight: Tensor | None, groups: Grouping, phi: float, floor: float
) -> Tensor:
    """The spread of the deviations z of every group. Statistics keep the reduced axes with size 1."""
    check_values(weight, groups)
    if weight is not None:  # selected, not multiplied: ignored entries may be NaN
        z = torch.where(weight > 0, z, 0.0)
    power = spread_power(kind)
    if power is not None:
        return power_mean(z, power, weight, groups)
    psi = robust_exponent(phi)
    result = robust_factor(psi) * implicit_center(z.abs(), psi, weight, groups).center
    if floor:
        result = torch.maximum(result, floor * mean_abs_factor() * power_mean(z, 1.0, weight, groups))
    return result


def robust_exponent(phi: float, name: str = "phi") -> float:
    """The exponent of the robust spread, checked. ``name``: what the caller's argument is called."""
    if isinstance(phi, bool) or not isinstance(phi, (int, float)) or not 1 <= phi <= _LARGEST_ROBUST_PHI:
        raise ValueError(
            f"expected {name}, the exponent of the robust spread, to be a number in [1, {_LARGEST_ROBUST_PHI:g}] "
            f"(got {phi}); it is not learned, and a larger one is not robust"
        )
    return float(phi)


def power_mean(z: Tensor, power: float, weight: Tensor | None, groups: Grouping) -> Tensor:
    """(mean |z|^q)^(1/q), in units of the largest |z|: the powers neither overflow nor vanish."""
    size = z.abs()
    if power == math.inf:
        return _poisoned(groups.max(size).clamp_min(0.0), weight, groups)  # an empty segment has none
    largest = groups.max(size.detach())
    some = ~(largest <= 0)  # NaN counts: it must come out
    unit = torch.where(some, largest, 1.0)
    ratio = size / groups.expand(unit)
    powers = ratio if power == 1 else ratio.pow(power)
    share = None if weight is None else unit_weight(weight, groups, z.dtype)[0]
    mass = (groups.count(z) if share is None else groups.sum(share)).to(z.dtype)
    mean = groups.sum(powers if share is None else powers * share) / torch.where(mass > 0, mass, 1.0)
    if power != 1:
        mean = torch.where(some, mean, 1.0).pow(1 / power)  # the root's slope at 0 is infinite
    return _poisoned(torch.where(some, unit * mean, 0.0), weight, groups)


def _poisoned(result: Tensor, weight: Tensor | None, groups: Grouping) -> Tensor:
    """NaN for groups with impossible weights, where they could not be checked."""
    if weight is None or can_look(weight):
        return result
    return torch.where(~(groups.min(weight) >= 0), math.nan, result)
