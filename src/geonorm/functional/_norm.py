"""One normalization for all: subtract a center, divide by a spread, scale and shift.

    z = x − α·c + b           c: the L^φ center of the group; α how much of it is removed; b a shift before the division
    y = γ·z/√(s² + ε) + β     s: a spread of z (or of x itself: ``scale_first``)

**Backward.** With g the gradient of y, h = γg, ρ = (s² + ε)^(−1/2), x̂ = ρz and G = Σ h x̂ over the group,

    ds = −sρ²G            dz = ρh + ds·∂s/∂z            dc = −Σ α dz            dx = dz + dc·∂c/∂x
    dγ = Σ g x̂            dβ = Σ g                      dα = −Σ c dz            db = Σ dz

It keeps x and a few numbers per group, and is differentiable again: center and spread are outputs of the same function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..ops import Grouping, unit_weight
from ._derivatives import center_vjp, power_mean_vjp
from ._gaussian import robust_factor
from ._implicit import center_of_groups, pack, unpack, visible
from ._spread import MEAN_ABS_FACTOR, power_mean


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


def normalize(
    x: Tensor,
    groups: Grouping,
    rule: Rule,
    phi: float | Tensor,
    alpha: float | Tensor,
    shift: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    weight: Tensor | None,
) -> tuple[Tensor, NormStatistics]:
    """The normalized x in x's dtype, and the statistics in the computing dtype (float32 for half precision).

    ``alpha``, ``shift``, ``gamma`` and ``beta`` broadcast to x; φ to the statistics; ``weight`` has x's shape. Entries
    of weight 0 come out as 0.
    """
    arguments = visible(x, phi, alpha, shift, gamma, beta, weight)
    y, *statistics = _Normalize.apply(*arguments, *unpack(groups), *rule)  # type: ignore[no-untyped-call]
    return y, NormStatistics(*statistics[:5])


def _deviations(
    x: Tensor, center: Tensor, alpha: float | Tensor, shift: Tensor | None, groups: Grouping, rule: Rule
) -> Tensor:
    z = x
    if rule.centered:
        removed = groups.expand(center)
        z = x - (removed if isinstance(alpha, float) and alpha == 1 else alpha * removed)
    return z if shift is None else z + shift


class _Normalize(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        phi: float | Tensor,
        alpha: float | Tensor,
        shift: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        weight: Tensor | None,
        batch: Tensor | None,
        dims: tuple[int, ...],
        number: int,
        *choices: Any,
    ) -> tuple[Tensor, ...]:
        groups, rule = pack(batch, dims, number), Rule(*choices)
        values = x if x.dtype in (torch.float32, torch.float64) else x.float()
        present = None if weight is None else weight > 0
        if present is not None:
            values = torch.where(present, values, 0.0)
        mass = groups.count(values) if weight is None else groups.sum(weight.double())
        mean = _mean(values, weight, groups)
        var = _mean((values - groups.expand(mean)).square(), weight, groups)
        if rule.centered:
            found = center_of_groups(values, phi, weight, groups, rule.sweeps, rule.interior)
            center, lower, upper = found.center, found.lower, found.upper
        else:
            center = lower = upper = torch.zeros_like(mean)
        z = _deviations(values, center, alpha, shift, groups, rule)
        middle, low, high = center, lower, upper
        spread = torch.ones_like(mean)
        if rule.scaled:
            source = values if rule.scale_first else z
            if rule.power is not None:
                spread = power_mean(source, rule.power, weight, groups)
            else:
                inner = center_of_groups(source.abs(), rule.spread_phi, weight, groups)
                middle, low, high = inner.center, inner.lower, inner.upper
                spread = robust_factor(rule.spread_phi) * middle
                if rule.spread_floor:
                    least = rule.spread_floor * MEAN_ABS_FACTOR * power_mean(source, 1.0, weight, groups)
                    spread = torch.maximum(spread, least)
            z = z * groups.expand((spread.square() + rule.eps).rsqrt())
        y = z if gamma is None else z * gamma
        y = y if beta is None else y + beta
        if present is not None:
            y = torch.where(present, y, 0.0)
        y = y.to(x.dtype) if y is not x else y.clone()
        return (
            y,
            center.clone(),
            spread,
            mean,
            var,
            mass,
            middle.clone(),
            lower.clone(),
            upper.clone(),
            low.clone(),
            high.clone(),
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, phi, alpha, shift, gamma, beta, weight, batch, ctx.dims, ctx.number, *choices = inputs
        _, center, spread, mean, var, mass, middle, lower, upper, low, high = output
        ctx.rule = Rule(*choices)
        ctx.phi, ctx.alpha = (None if isinstance(value, Tensor) else value for value in (phi, alpha))
        ctx.mark_non_differentiable(mean, var, mass, lower, upper, low, high)
        tensors = (value if isinstance(value, Tensor) else None for value in (phi, alpha))
        ctx.beta_shape = None if beta is None else beta.shape
        ctx.save_for_backward(x, *tensors, shift, gamma, weight, batch, center, spread, middle, lower, upper, low, high)

    @staticmethod
    def backward(ctx: Any, g: Tensor, g_center: Tensor, g_spread: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        (x, phi_tensor, alpha_tensor, shift, gamma, weight, batch, center, spread, middle, *edges) = ctx.saved_tensors
        rule, groups = ctx.rule, pack(batch, ctx.dims, ctx.number)
        phi: float | Tensor = ctx.phi if phi_tensor is None else phi_tensor
        alpha: float | Tensor = ctx.alpha if alpha_tensor is None else alpha_tensor
        _, need_phi, need_alpha, need_shift, need_gamma, need_beta, need_weight, *_ = ctx.needs_input_grad
        values, g = x.to(center.dtype), g.to(center.dtype)
        if weight is not None:
            values, g = torch.where(weight > 0, values, 0.0), torch.where(weight > 0, g, 0.0)
        z = _deviations(values, center, alpha, shift, groups, rule)
        rho = (spread.square() + rule.eps).rsqrt() if rule.scaled else torch.ones_like(spread)
        x_hat = z * groups.expand(rho)
        h = g if gamma is None else g * gamma
        dz = h * groups.expand(rho)
        d_values = d_weight = None
        if rule.scaled:
            d_spread = g_spread - spread * rho.square() * groups.sum(h * x_hat)
            source = values if rule.scale_first else z
            through_spread, d_weight = _spread_vjp(
                d_spread, source, spread, middle, weight, groups, (edges[2], edges[3]), rule, need_weight, rest[3]
            )
            if rule.scale_first:
                d_values = through_spread
            else:
                dz = dz + through_spread
        d_values = dz if d_values is None else d_values + dz
        d_phi = None
        if rule.centered:
            removed = groups.sum(dz if isinstance(alpha, float) and alpha == 1 else alpha * dz)
            floor = rule.grad_floor * spread.detach() if rule.grad_floor else None
            through = center_vjp(
                g_center - removed,
                values,
                center,
                phi,
                weight,
                groups,
                (edges[0], edges[1]),
                need_phi=need_phi,
                need_weight=need_weight,
                floor=floor,
                interior=rule.interior,
            )
            d_values, d_phi = d_values + through.values, through.phi
            if need_weight and through.weight is not None:
                d_weight = through.weight if d_weight is None else d_weight + through.weight
        if weight is not None:
            d_values = torch.where(weight > 0, d_values, 0.0)
            if d_weight is not None:
                d_weight = torch.where(weight > 0, d_weight, 0.0)
        d_alpha = -_sum_like(dz * groups.expand(center), alpha_tensor) if need_alpha else None
        d_shift = _sum_like(dz, shift) if need_shift else None
        d_gamma = _sum_like(g * x_hat, gamma) if need_gamma else None
        d_beta = g.sum_to_size(ctx.beta_shape) if need_beta else None
        return d_values.to(x.dtype), d_phi, d_alpha, d_shift, d_gamma, d_beta, d_weight, *[None] * (3 + len(rule))


def _spread_vjp(
    grad: Tensor,
    z: Tensor,
    spread: Tensor,
    middle: Tensor,
    weight: Tensor | None,
    groups: Grouping,
    edges: tuple[Tensor, Tensor],
    rule: Rule,
    need_weight: bool,
    grad_middle: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """What flows from the spread to the deviations and to the weights."""
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
        edges,
        need_weight=need_weight,
    )
    if not rule.spread_floor:
        return by_center.values * z.sign(), by_center.weight
    share = rule.spread_floor * MEAN_ABS_FACTOR
    by_floor = power_mean_vjp(
        torch.where(floored, share * grad, 0.0), z, spread / share, 1.0, weight, groups, need_weight=need_weight
    )
    d_weight = None
    if by_center.weight is not None and by_floor.weight is not None:
        d_weight = by_center.weight + by_floor.weight
    return by_center.values * z.sign() + by_floor.values, d_weight


def _mean(values: Tensor, weight: Tensor | None, groups: Grouping) -> Tensor:
    """Two passes: the digits that an offset would cost are found again."""
    share = None if weight is None else unit_weight(weight, groups, values.dtype)[0]
    mass = groups.count(values) if share is None else groups.sum(share).double()
    mass = torch.where(mass > 0, mass, 1.0)

    def once(v: Tensor) -> Tensor:
        return (groups.sum(v if share is None else v * share).double() / mass).to(values.dtype)

    rough = once(values)
    return rough + once(values - groups.expand(rough))


def _sum_like(values: Tensor, parameter: Tensor) -> Tensor:
    return values.sum_to_size(parameter.shape).to(parameter.dtype)
