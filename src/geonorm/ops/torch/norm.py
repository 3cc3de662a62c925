"""The normalization in plain torch: forward and backward of whole groups.

**Backward.** With g the gradient of y, h = γg, ρ = (s² + ε)^(−1/2), x̂ = ρz and G = Σ h x̂ over the group,

    ds = −sρ²G            dz = ρh + ds·∂s/∂z            dc = −Σ α dz            dx = dz + dc·∂c/∂x
    dγ = Σ g x̂            dβ = Σ g                      dα = −Σ c dz            db = Σ dz

It needs x and a few numbers per group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import problem
from ..checks import can_read_values
from ..grouping import Axes, Grouping, unit_weight
from ..precision import computing_dtype, wide
from ..problem import Incoming, Inputs, NormStatistics, Rule
from .center import Center, center
from .derivatives import center_vjp, power_mean_vjp
from .gaussian import robust_factor
from .spread import mean_abs_factor, power_mean

FindCenter = Callable[[Tensor, "float | Tensor", "Tensor | None", Grouping, "int | None", bool], Center]


def deviations(
    x: Tensor, center: Tensor, alpha: float | Tensor, shift: Tensor | None, groups: Grouping | None, rule: Rule
) -> Tensor:
    """z = x − α·center + shift. Without groups, x is itself a statistic."""
    z = x
    if rule.centered:
        removed = center if groups is None else groups.expand(center)
        z = x - (removed if isinstance(alpha, float) and alpha == 1 else alpha * removed)
    return z if shift is None else z + shift


class ForwardStatistics(NamedTuple):
    """Results of forward per group: statistics, the center of |z| (robust spread), and the ends of both centers."""

    center: Tensor
    spread: Tensor
    mean: Tensor
    var: Tensor
    mass: Tensor
    middle: Tensor
    lower: Tensor
    upper: Tensor
    low: Tensor
    high: Tensor
    bound: Tensor
    sweeps: Tensor
    floored: Tensor  # 1 where the floor replaced the robust spread

    def statistics(self) -> NormStatistics:
        return NormStatistics(self.center, self.spread, self.mean, self.var, self.mass)

    def to_saved(self) -> Tensor:
        """Rows with the columns of ``problem.COLUMNS``."""
        return problem.to_rows(dict(zip(_STATISTICS_COLUMNS, self, strict=True)))

    @staticmethod
    def from_saved(saved: Tensor, like: Tensor, groups: Grouping) -> ForwardStatistics:
        shape, dtype = problem.statistics_shape(like.shape, groups), computing_dtype(like.dtype)
        columns = [saved[:, column].reshape(shape) for column in _STATISTICS_COLUMNS]
        return ForwardStatistics(*[value if i == 4 else value.to(dtype) for i, value in enumerate(columns)])


_STATISTICS_COLUMNS = (
    problem.CENTER, problem.SPREAD, problem.MEAN, problem.VAR, problem.MASS, problem.MIDDLE, problem.LOWER,
    problem.UPPER, problem.LOWER_2, problem.UPPER_2, problem.BOUND, problem.SWEEPS,
    problem.FLOORED,
)  # fmt: skip


def forward(
    of: Inputs, groups: Grouping, rule: Rule, find: FindCenter = center, find_middle: FindCenter | None = None
) -> tuple[Tensor, ForwardStatistics]:
    """Output and statistics of whole groups.

    ``find`` computes the center. If it is differentiable, the output is too, as often as the center is. ``find_middle``
    computes the center of |z| for a robust spread; the same as ``find`` by default.
    """
    exact = find is not center
    values = of.x if of.x.dtype in (torch.float32, torch.float64) else of.x.float()
    weight, present = of.weight, None
    if weight is not None:
        present = weight > 0
        values = torch.where(present, values, 0.0)
    mass = groups.count(values) if weight is None else groups.sum(wide(weight))
    mean, var = moments(values, weight, groups)
    bound = sweeps = floored = torch.zeros_like(mean)
    if not rule.centered:
        c = lower = upper = torch.zeros_like(mean)
    elif isinstance(of.phi, float) and of.phi == 2:
        c = lower = upper = mean
    else:
        found = find(values, of.phi, weight, groups, rule.sweeps, rule.phi_strictly_inside)
        c, lower, upper, bound, sweeps = found.center, found.lower, found.upper, found.bound, found.sweeps
        c = torch.where(mean.isfinite(), c, math.nan)  # the median tolerates Inf; later statistics do not
    z = deviations(values, c, of.alpha, of.shift, groups, rule)
    middle, low, high = c, lower, upper
    spread = torch.ones_like(mean)
    if rule.scaled:
        source = values if rule.scale_first else z
        if rule.power == 2 and not exact and shifts_whole_groups(of, groups) and _is_moderate(mean, var):
            shifted = mean if rule.scale_first else deviations(mean, c, of.alpha, of.shift, None, rule)
            spread = (var + shifted.square()).sqrt()  # mean z² is the variance of x plus (mean z)²
        elif rule.power is not None:
            spread = power_mean(source, rule.power, weight, groups)
        else:
            inner = (find_middle or find)(source.abs(), rule.spread_phi, weight, groups, None, False)
            middle, low, high = inner.center, inner.lower, inner.upper
            spread = robust_factor(rule.spread_phi) * middle
            if rule.spread_floor:
                least = rule.spread_floor * mean_abs_factor() * power_mean(source, 1.0, weight, groups)
                floored = (least > spread).to(mean.dtype)
                spread = torch.maximum(spread, least)
        z = z * groups.expand(inverse(spread, rule.eps, mass))
    y = z if of.gamma is None else z * of.gamma
    y = y if of.beta is None else y + of.beta
    if present is not None:
        y = torch.where(present, y, 0.0)
    return y.to(of.x.dtype), ForwardStatistics(
        c, spread, mean, var, mass, middle, lower, upper, low, high, bound, sweeps, floored
    )


def backward(
    grads: Incoming, of: Inputs, found: ForwardStatistics, groups: Grouping, rule: Rule, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order, for whole groups. ``of.beta`` may be any tensor of β's shape."""
    _, need_phi, need_alpha, need_shift, need_gamma, need_beta, need_weight = needs
    center, spread, weight, alpha = found.center, found.spread, of.weight, of.alpha
    values, g = of.x.to(center.dtype), grads.output.to(center.dtype)
    if weight is not None:
        values, g = torch.where(weight > 0, values, 0.0), torch.where(weight > 0, g, 0.0)
    z = deviations(values, center, alpha, of.shift, groups, rule)
    rho = inverse(spread, rule.eps, found.mass) if rule.scaled else torch.ones_like(spread)
    x_hat = z * groups.expand(rho)
    h = g if of.gamma is None else g * of.gamma
    dz = h * groups.expand(rho)
    d_values = d_weight = d_phi = None
    if rule.scaled:
        d_spread = -(spread * rho) * rho * groups.sum(h * x_hat)
        d_spread = d_spread if grads.spread is None else grads.spread + d_spread
        source = values if rule.scale_first else z
        through_spread, d_weight = _spread_vjp(d_spread, source, found, weight, groups, rule, need_weight)
        if rule.scale_first:
            d_values = through_spread
        else:
            dz = dz + through_spread
    d_values = dz if d_values is None else d_values + dz
    if rule.centered:
        d_center = -groups.sum(dz if isinstance(alpha, float) and alpha == 1 else alpha * dz)
        d_center = d_center if grads.center is None else grads.center + d_center
        through = center_vjp(
            d_center,
            values,
            center,
            of.phi,
            weight,
            groups,
            (found.lower, found.upper),
            need_phi=need_phi,
            need_weight=need_weight,
            floor=rule.grad_floor * spread if rule.grad_floor else None,
            phi_strictly_inside=rule.phi_strictly_inside,
        )
        d_values, d_phi = d_values + through.values, through.phi
        if through.weight is not None:
            d_weight = through.weight if d_weight is None else d_weight + through.weight
    if weight is not None:
        d_values = torch.where(weight > 0, d_values, 0.0)
        d_weight = None if d_weight is None else torch.where(weight > 0, d_weight, 0.0)
    d_alpha = -sum_like(dz * groups.expand(center), alpha) if need_alpha else None
    d_shift = sum_like(dz, of.shift) if need_shift else None
    d_gamma = sum_like(g * x_hat, of.gamma) if need_gamma else None
    d_beta = sum_like(g, of.beta) if need_beta else None
    return d_values.to(of.x.dtype), d_phi, d_alpha, d_shift, d_gamma, d_beta, d_weight


def _spread_vjp(
    grad: Tensor,
    z: Tensor,
    found: ForwardStatistics,
    weight: Tensor | None,
    groups: Grouping,
    rule: Rule,
    need_weight: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the deviations and of the weights, through the spread."""
    spread, middle = found.spread, found.middle
    if rule.power is not None:
        flow = power_mean_vjp(grad, z, spread, rule.power, weight, groups, need_weight=need_weight)
        return flow.values, flow.weight
    factor = robust_factor(rule.spread_phi)
    size = z.abs()
    floored = found.floored > 0
    by_center = center_vjp(
        torch.where(floored, 0.0, factor * grad),
        size,
        middle,
        rule.spread_phi,
        weight,
        groups,
        (found.low, found.high),
        need_weight=need_weight,
    )
    if not rule.spread_floor:
        return by_center.values * z.sign(), by_center.weight
    fraction = rule.spread_floor * mean_abs_factor()
    by_floor = power_mean_vjp(
        torch.where(floored, fraction * grad, 0.0), z, spread / fraction, 1.0, weight, groups, need_weight=need_weight
    )
    d_weight = None
    if by_center.weight is not None and by_floor.weight is not None:
        d_weight = by_center.weight + by_floor.weight
    return by_center.values * z.sign() + by_floor.values, d_weight


def moments(values: Tensor, weight: Tensor | None, groups: Grouping) -> tuple[Tensor, Tensor]:
    """Mean and biased variance, in two passes, so that a large offset costs no digits."""
    unit_weights = None if weight is None else unit_weight(weight, groups, values.dtype)[0]
    mass = groups.count(values) if unit_weights is None else wide(groups.sum(unit_weights))
    mass = torch.where(mass > 0, mass, 1.0)

    def means_of(*each: Tensor) -> list[Tensor]:
        sums = [groups.sum(v if unit_weights is None else v * unit_weights) for v in each]
        return [(wide(total) / mass).to(values.dtype) for total in sums]

    (rough,) = means_of(values)
    centred = values - groups.expand(rough)
    rest, square = means_of(centred, centred.square())
    return rough + rest, (square - rest.square()).clamp_min(0.0)


def shifts_whole_groups(of: Inputs, groups: Grouping) -> bool:
    """Whether α and the shift are the same for all values of a group."""
    return not isinstance(groups, Axes) or all(is_per_group(value, of.x, groups) for value in (of.alpha, of.shift))


def is_per_group(value: float | Tensor | None, x: Tensor, groups: Axes) -> bool:
    """Whether a parameter is the same for all values of a group."""
    if not isinstance(value, Tensor):
        return True
    missing = x.dim() - value.dim()
    return all(d < missing or value.shape[d - missing] == 1 for d in groups.dims)


def removed(center: Tensor, alpha: float | Tensor, shift: Tensor | None) -> Tensor:
    """x − z: what a normalization subtracts."""
    found = center if isinstance(alpha, float) and alpha == 1 else alpha * center
    return found if shift is None else found - shift


def _is_moderate(mean: Tensor, var: Tensor) -> bool:
    """Whether squares neither overflow nor underflow; False while a compiler traces."""
    limits = torch.finfo(var.dtype)
    if not can_read_values(var):
        return False
    usable = (var > limits.tiny / limits.eps) & (var < limits.max * limits.eps)
    return bool((usable | ~mean.isfinite()).all())


def inverse(spread: Tensor, eps: float, mass: Tensor) -> Tensor:
    """ρ = (s² + ε)^(−1/2), 0 for a group without values. In float64: the square of 1e30 overflows float32."""
    return torch.where(mass > 0, (wide(spread).square() + eps).rsqrt(), 0.0).to(spread.dtype)


def sum_like(values: Tensor, parameter: Any) -> Tensor:
    """The values summed to the shape of a parameter that was broadcast, in its dtype."""
    return values.sum_to_size(parameter.shape).to(parameter.dtype)
