"""One normalization for all: subtract a center, divide by a spread, scale and shift.

    z = x − α·c + b           c: the L^φ center of the group; α how much of it is removed; b a shift before the division
    y = γ·z/√(s² + ε) + β     s: a spread of z (or of x itself: ``scale_first``)

**Backward.** With g the gradient of y, h = γg, ρ = (s² + ε)^(−1/2), x̂ = ρz and G = Σ h x̂ over the group,

    ds = −sρ²G            dz = ρh + ds·∂s/∂z            dc = −Σ α dz            dx = dz + dc·∂c/∂x
    dγ = Σ g x̂            dβ = Σ g                      dα = −Σ c dz            db = Σ dz

It keeps x and a few numbers per group, and is differentiable again: center and spread are outputs of the same function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..ops import Axes, Grouping, can_look, unit_weight
from ._arguments import check_floor, spread_power
from ._derivatives import center_vjp, power_mean_vjp
from ._gaussian import robust_factor
from ._implicit import center_of_groups
from ._spread import mean_abs_factor, power_mean, robust_exponent

_FLAT = 4.5  # |θ + θ₀| from which the sigmoid counts as flat: φ is within 1.1 % of an end of its range
_FLAT_SLOPE = 1 / (math.exp(_FLAT / 2) + math.exp(-_FLAT / 2)) ** 2


class NormStatistics(NamedTuple):
    """What a normalization measured, per group, with the reduced axes kept.

    Attributes:
        center: the L^φ center.
        spread: the spread that the deviations were divided by, before ε.
        mean: the plain mean of x.
        var: the plain (biased) variance of x.
        mass: float64; number of values, or the sum of their weights.
    """

    center: Tensor
    spread: Tensor
    mean: Tensor
    var: Tensor
    mass: Tensor


class Rule(NamedTuple):
    """The choices that are not tensors."""

    power: float | None = 2.0  # of the spread; None: robust
    eps: float = 1e-5
    spread_phi: float = 1.5
    spread_floor: float = 0.05
    grad_floor: float = 0.0
    sweeps: int | None = None
    interior: bool = False  # a tensor φ is known to lie inside (1, ∞)
    centered: bool = True
    scaled: bool = True
    scale_first: bool = False
    guard: float | None = None  # k: far samples are pulled onto a ball of k median distances first


def _deviations(
    x: Tensor, center: Tensor, alpha: float | Tensor, shift: Tensor | None, groups: Grouping | None, rule: Rule
) -> Tensor:
    """z of the values x; without groups, of a statistic."""
    z = x
    if rule.centered:
        removed = center if groups is None else groups.expand(center)
        z = x - (removed if isinstance(alpha, float) and alpha == 1 else alpha * removed)
    return z if shift is None else z + shift


def make_rule(
    spread: str | float, spread_phi: float, spread_floor: float, grad_floor: float = 0.0, **choices: Any
) -> Rule:
    """A rule from a kind of spread by name."""
    if torch.compiler.is_compiling():
        return _make_rule(spread, spread_phi, spread_floor, grad_floor, **choices)
    return _known_rule(spread, spread_phi, spread_floor, grad_floor, **choices)


def _make_rule(spread: str | float, spread_phi: float, spread_floor: float, grad_floor: float, **choices: Any) -> Rule:
    power = spread_power(spread, "spread")
    check_floor(grad_floor, "grad_floor", of="spread")
    if power is None:
        check_floor(spread_floor, "spread_floor")
        spread_phi = robust_exponent(spread_phi, "spread_phi")
    return Rule(power=power, spread_phi=spread_phi, spread_floor=spread_floor, grad_floor=grad_floor, **choices)


_known_rule = lru_cache(maxsize=1024)(_make_rule)


class LearnedPhi(NamedTuple):
    """φ = low + (high − low)·sigmoid(offset + start), not yet computed: the kernels do that themselves.

    ``offset`` broadcasts over the kept dimensions. Near the ends of the range the sigmoid is flat. A gradient that
    leads away from them gets the slope where flatness begins, so that φ can come back from however far it went.
    """

    offset: Tensor
    low: float
    high: float
    start: float

    def value(self) -> Tensor:
        share: Tensor = _Sigmoid.apply(self.offset + self.start)  # type: ignore[no-untyped-call]
        return self.low + (self.high - self.low) * share

    def is_flat(self) -> bool:
        """Whether some offset lies where the sigmoid is flat, which the kernels do not care for."""
        low, high = torch.aminmax(self.offset.detach())
        return not (float(low) + self.start >= -_FLAT and float(high) + self.start <= _FLAT)


class _Sigmoid(torch.autograd.Function):
    """The sigmoid, with a slope that is at least that at ±``_FLAT`` for gradients that lead back to 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor) -> Tensor:
        return torch.sigmoid(t)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (t,) = ctx.saved_tensors
        slope = torch.sigmoid(t) * torch.sigmoid(-t)
        leads_back = (grad * t > 0) & (t.abs() > _FLAT)  # a step goes against the gradient
        return grad * torch.where(leads_back, _FLAT_SLOPE, slope)


class Inputs(NamedTuple):
    """The tensors of one normalization; numbers stay numbers."""

    x: Tensor
    phi: float | Tensor
    alpha: float | Tensor
    shift: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    weight: Tensor | None


class Found(NamedTuple):
    """What the forward leaves: statistics, the center of the deviations (robust spread), the ends of both centers."""

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


def forward(of: Inputs, groups: Grouping, rule: Rule) -> tuple[Tensor, Found]:
    """Output and statistics of whole groups."""
    values = of.x if of.x.dtype in (torch.float32, torch.float64) else of.x.float()
    weight, present = of.weight, None
    if weight is not None:
        present = weight > 0
        values = torch.where(present, values, 0.0)
    mass = groups.count(values) if weight is None else groups.sum(weight.double())
    mean, var = _moments(values, weight, groups)
    if not rule.centered:
        center = lower = upper = torch.zeros_like(mean)
    elif isinstance(of.phi, float) and of.phi == 2:
        center = lower = upper = mean
    else:
        found = center_of_groups(values, of.phi, weight, groups, rule.sweeps, rule.interior)
        center, lower, upper = found.center, found.lower, found.upper
        center = torch.where(mean.isfinite(), center, math.nan)  # a median bears an Inf, nothing after it does
    z = _deviations(values, center, of.alpha, of.shift, groups, rule)
    middle, low, high = center, lower, upper
    spread = torch.ones_like(mean)
    if rule.scaled:
        source = values if rule.scale_first else z
        if rule.power == 2 and _shifts_whole_groups(of, groups) and _is_moderate(mean, var):
            shifted = mean if rule.scale_first else _deviations(mean, center, of.alpha, of.shift, None, rule)
            spread = (var + shifted.square()).sqrt()  # mean z² is the variance of x plus (mean z)²
        elif rule.power is not None:
            spread = power_mean(source, rule.power, weight, groups)
        else:
            inner = center_of_groups(source.abs(), rule.spread_phi, weight, groups)
            middle, low, high = inner.center, inner.lower, inner.upper
            spread = robust_factor(rule.spread_phi) * middle
            if rule.spread_floor:
                least = rule.spread_floor * mean_abs_factor() * power_mean(source, 1.0, weight, groups)
                spread = torch.maximum(spread, least)
        z = z * groups.expand(_inverse(spread, rule.eps, mass))
    y = z if of.gamma is None else z * of.gamma
    y = y if of.beta is None else y + of.beta
    if present is not None:
        y = torch.where(present, y, 0.0)
    return y.to(of.x.dtype), Found(center, spread, mean, var, mass, middle, lower, upper, low, high)


class Incoming(NamedTuple):
    """Gradients of the differentiable outputs."""

    output: Tensor
    center: Tensor
    spread: Tensor
    middle: Tensor


def backward(
    grads: Incoming, of: Inputs, found: Found, groups: Grouping, rule: Rule, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order, for whole groups. ``of.beta`` may be any tensor of β's shape.

    Of groups over several processes each computes its own part: the gradients of parameters add up to the whole.
    """
    _, need_phi, need_alpha, need_shift, need_gamma, need_beta, need_weight = needs
    center, spread, weight, alpha = found.center, found.spread, of.weight, of.alpha
    values, g = of.x.to(center.dtype), grads.output.to(center.dtype)
    if weight is not None:
        values, g = torch.where(weight > 0, values, 0.0), torch.where(weight > 0, g, 0.0)
    z = _deviations(values, center, alpha, of.shift, groups, rule)
    rho = _inverse(spread, rule.eps, found.mass) if rule.scaled else torch.ones_like(spread)
    x_hat = z * groups.expand(rho)
    h = g if of.gamma is None else g * of.gamma
    dz = h * groups.expand(rho)
    d_values = d_weight = d_phi = None
    if rule.scaled:
        (d_spread,) = groups.join(grads.spread - (spread * rho) * rho * groups.here.sum(h * x_hat))
        source = values if rule.scale_first else z
        through_spread, d_weight = _spread_vjp(d_spread, grads.middle, source, found, weight, groups, rule, need_weight)
        if rule.scale_first:
            d_values = through_spread
        else:
            dz = dz + through_spread
    d_values = dz if d_values is None else d_values + dz
    if rule.centered:
        d_center = grads.center - groups.here.sum(dz if isinstance(alpha, float) and alpha == 1 else alpha * dz)
        through = center_vjp(
            groups.join(d_center)[0],
            values,
            center,
            of.phi,
            weight,
            groups,
            (found.lower, found.upper),
            need_phi=need_phi,
            need_weight=need_weight,
            floor=rule.grad_floor * spread.detach() if rule.grad_floor else None,
            interior=rule.interior,
            here=d_center,
        )
        d_values, d_phi = d_values + through.values, through.phi
        if through.weight is not None:
            d_weight = through.weight if d_weight is None else d_weight + through.weight
    if weight is not None:
        d_values = torch.where(weight > 0, d_values, 0.0)
        d_weight = None if d_weight is None else torch.where(weight > 0, d_weight, 0.0)
    d_alpha = -_sum_like(dz * groups.expand(center), alpha) if need_alpha else None
    d_shift = _sum_like(dz, of.shift) if need_shift else None
    d_gamma = _sum_like(g * x_hat, of.gamma) if need_gamma else None
    d_beta = _sum_like(g, of.beta) if need_beta else None
    return d_values.to(of.x.dtype), d_phi, d_alpha, d_shift, d_gamma, d_beta, d_weight


def _spread_vjp(
    grad: Tensor,
    grad_middle: Tensor,
    z: Tensor,
    found: Found,
    weight: Tensor | None,
    groups: Grouping,
    rule: Rule,
    need_weight: bool,
) -> tuple[Tensor, Tensor | None]:
    """What flows from the spread to the deviations and to the weights."""
    spread, middle = found.spread, found.middle
    if rule.power is not None:
        flow = power_mean_vjp(grad, z, spread, rule.power, weight, groups, need_weight=need_weight)
        return flow.values, flow.weight
    factor = robust_factor(rule.spread_phi)
    size = z.abs()
    floored = spread > factor * middle  # the mean deviation took over
    by_center = center_vjp(
        grad_middle + torch.where(floored, 0.0, factor * grad),
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
    share = rule.spread_floor * mean_abs_factor()
    by_floor = power_mean_vjp(
        torch.where(floored, share * grad, 0.0), z, spread / share, 1.0, weight, groups, need_weight=need_weight
    )
    d_weight = None
    if by_center.weight is not None and by_floor.weight is not None:
        d_weight = by_center.weight + by_floor.weight
    return by_center.values * z.sign() + by_floor.values, d_weight


def _moments(values: Tensor, weight: Tensor | None, groups: Grouping) -> tuple[Tensor, Tensor]:
    """Mean and biased variance, in two passes: the digits that an offset would cost are found again."""
    share = None if weight is None else unit_weight(weight, groups, values.dtype)[0]
    mass = groups.count(values) if share is None else groups.sum(share).double()
    mass = torch.where(mass > 0, mass, 1.0)

    def means_of(*each: Tensor) -> list[Tensor]:
        sums = groups.join(*[groups.here.sum(v if share is None else v * share) for v in each])
        return [(total.double() / mass).to(values.dtype) for total in sums]

    (rough,) = means_of(values)
    centred = values - groups.expand(rough)
    rest, square = means_of(centred, centred.square())
    return rough + rest, (square - rest.square()).clamp_min(0.0)


def _shifts_whole_groups(of: Inputs, groups: Grouping) -> bool:
    """Whether α and the shift are the same for all values of a group."""
    if not isinstance(groups, Axes):
        return True
    for value in (of.alpha, of.shift):
        if isinstance(value, Tensor):
            missing = of.x.dim() - value.dim()
            if any(d >= missing and value.shape[d - missing] != 1 for d in groups.dims):
                return False
    return True


def _is_moderate(mean: Tensor, var: Tensor) -> bool:
    """Whether squares neither overflow nor vanish; not known while a compiler traces."""
    limits = torch.finfo(var.dtype)
    if not can_look(var):
        return False
    usable = (var > limits.tiny / limits.eps) & (var < limits.max * limits.eps)
    return bool((usable | ~mean.isfinite()).all())


def _inverse(spread: Tensor, eps: float, mass: Tensor) -> Tensor:
    """ρ = (s² + ε)^(−1/2), 0 for a group without values; the square of a spread of 1e30 needs more than float32."""
    return torch.where(mass > 0, (spread.double().square() + eps).rsqrt(), 0.0).to(spread.dtype)


def _sum_like(values: Tensor, parameter: Any) -> Tensor:
    return values.sum_to_size(parameter.shape).to(parameter.dtype)
