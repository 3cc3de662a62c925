"""Derivatives of the center and of the spreads, in differentiable tensor operations.

**Center.** With r = x − μ, w = ω|r|^(φ−2), W = Σw and q = φ − 1, differentiating Σ ω sgn(r)|r|^q = 0 gives

    ∂μ/∂x_i = w_i / W        ∂μ/∂ω_i = sgn(r_i)|r_i|^q / (qW)        ∂μ/∂φ = Σ ω sgn(r)|r|^q ln|r| / (qW)

Everything is written in terms of x and of the output μ, so that derivatives of any order are right where they exist.
Conventions where they do not exist:

* φ < 2: |r| is floored at δ = 4·eps·max|x|, the rounding level of r. Values at μ share the gradient.
* φ > 2: a value at μ gets none. A group of equal values shares it equally.
* φ = 1 and φ = ∞: half of the gradient to each of the two values whose midpoint is μ, shared by their ties.
* entries of weight 0 are ignored: they get no gradient, neither in x nor in the weight.

**Power mean.** s = (Σ ω|z|^q / M)^(1/q) has ∂s/∂z_i = ω_i sgn(z_i)(|z_i|/s)^(q−1) / M and
∂s/∂ω_i = s((|z_i|/s)^q − 1) / (qM). At z = 0 it is taken as 0.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import can_read_values
from ..grouping import Grouping, power_of_two, unit_weight
from .search import smallest_distance


class Gradients(NamedTuple):
    """Gradients of the values, of the exponent and of the weights."""

    values: Tensor
    phi: Tensor | None = None
    weight: Tensor | None = None


def center_vjp(
    grad: Tensor,
    x: Tensor,
    mu: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    edges: tuple[Tensor, Tensor],
    *,
    need_phi: bool = False,
    need_weight: bool = False,
    floor: Tensor | None = None,
    phi_strictly_inside: bool = False,
) -> Gradients:
    """Gradients of the center from the gradient of its value.

    Args:
        grad: gradient of μ, per group.
        x, mu, phi, weight, groups: as the center was computed.
        edges: the two values whose midpoint is μ; used at φ = 1 and φ = ∞.
        need_phi, need_weight: whether those gradients are wanted.
        floor: clamp |r| at this distance per group, if it is larger than the rounding level.
        phi_strictly_inside: a tensor φ is known to lie in (1, ∞).
    """
    if not isinstance(phi, Tensor) and phi == 2 and weight is None:
        mass = groups.count(x).to(x.dtype)
        return Gradients(groups.expand(grad / torch.where(mass > 0, mass, 1.0)).expand_as(x))
    if not isinstance(phi, Tensor) and phi in (1, math.inf):
        fraction = _fraction_at_edges(x, weight, groups, edges)
        values: Tensor = _FirstOrderOnly.apply(groups.expand(grad) * fraction, x)  # type: ignore[no-untyped-call]
        return Gradients(values, None, torch.zeros_like(x) if need_weight else None)
    edge = None
    if isinstance(phi, Tensor) and not phi_strictly_inside:
        edge = (phi == 1) | phi.isinf()
        phi = torch.where(edge, 2.0, phi)

    present = unit_of_weight = None
    if weight is not None:  # selected, not multiplied: ignored entries may be NaN
        present = weight > 0
        x = torch.where(present, x, groups.expand(mu))
        weight, unit_of_weight = unit_weight(weight, groups, x.dtype)
    low, high = groups.extremes(x.detach())
    tallest = torch.maximum(high, -low)
    given, down = x, _downscale(tallest, x)
    if down is not None:
        x, mu, tallest = x * groups.expand(down), mu * down, tallest * down
        low, high = low * down, high * down
        floor = None if floor is None else floor * down
    r = x - groups.expand(mu)
    r = r if present is None else torch.where(present, r, 0.0)
    a = r.abs()
    largest = torch.maximum(high - mu, mu - low).detach()
    unit = torch.where(largest > 0, largest, 1.0)  # |r| in units of the largest: no power overflows
    a = a / groups.expand(unit)
    least = 4 * torch.finfo(x.dtype).eps * tallest
    least = (least if floor is None else torch.maximum(least, floor)) / unit
    w = slope_of(a, phi, groups.expand(least.clamp_min(smallest_distance())), groups, mu, largest)
    if weight is not None and present is not None:
        w = torch.where(present, w, 0.0) * weight
    total = groups.sum(w)
    total = torch.where(total == 0, 1.0, total)  # an empty segment, or equal values and φ > 2
    fraction = w / groups.expand(total)
    if edge is not None:
        everywhere = groups.expand(edge.expand_as(mu))
        fraction = torch.where(everywhere, _fraction_at_edges(given, weight, groups, edges), fraction)
    values = groups.expand(grad) * fraction
    if not (need_phi or need_weight):
        return Gradients(values)

    q = _of_dtype(phi - 1, x)  # subtract before rounding: φ close to 1 would round to 1
    distance = a.clamp_min(smallest_distance())
    signed = distance.pow(q if isinstance(q, float) else groups.expand(q.expand_as(mu))) * r.sign()
    gain = unit / total / q
    gain = gain if down is None else gain / down
    if edge is not None:
        gain = torch.where(edge, 0.0, gain)
    grad_phi = None
    if need_phi and isinstance(phi, Tensor):
        moment = signed * distance.log()
        moment = groups.sum(moment if weight is None else moment * weight)
        flow = grad * gain * moment
        flow = torch.where(
            mu.isfinite() | (grad != 0), flow, 0.0
        )  # a NaN group without an incoming gradient adds nothing
        grad_phi = flow.sum_to_size(phi.shape).to(phi.dtype)
    grad_weight = None
    if need_weight and unit_of_weight is not None and present is not None:
        grad_weight = torch.where(present, groups.expand((grad * gain * unit_of_weight).to(x.dtype)) * signed, 0.0)
    return Gradients(values, grad_phi, grad_weight)


def _downscale(tallest: Tensor, x: Tensor) -> Tensor | None:
    """A factor per group that keeps x − μ from overflowing; None if no values are that large."""
    limit = 0.25 * torch.finfo(x.dtype).max
    if can_read_values(tallest) and not bool((tallest > limit).any()):
        return None
    return torch.where(tallest > limit, power_of_two(tallest), 1.0).to(x.dtype)


def slope_of(a: Tensor, phi: float | Tensor, least: Tensor, groups: Grouping, mu: Tensor, largest: Tensor) -> Tensor:
    """|r|^(φ−2), with the conventions at r = 0: for φ > 2 it is 0, except in a group of equal values, where it is 1 so
    that they share the gradient."""
    alone = groups.expand((largest == 0).to(a.dtype))
    if isinstance(phi, Tensor):
        order = groups.expand(_of_dtype(phi, a).expand_as(mu))  # type: ignore[union-attr]
        base = torch.where(order < 2, torch.maximum(a, least), a.clamp_min(smallest_distance()))
        return torch.where((a == 0) & (order > 2), alone, base.pow(order - 2))
    if phi == 2:
        return torch.ones_like(a)
    if phi < 2:
        return torch.maximum(a, least).pow(phi - 2)
    return torch.where(a == 0, alone, a.clamp_min(smallest_distance()).pow(phi - 2))


def _of_dtype(phi: float | Tensor, x: Tensor) -> float | Tensor:
    return phi.to(x.dtype) if isinstance(phi, Tensor) else phi


def _fraction_at_edges(x: Tensor, weight: Tensor | None, groups: Grouping, edges: tuple[Tensor, Tensor]) -> Tensor:
    """The fraction of the gradient per value: ½ for the ties of each of the two values with the center as midpoint."""

    def fraction(edge: Tensor) -> Tensor:
        ties = (x == groups.expand(edge)).to(x.dtype)
        ties = ties if weight is None else ties * weight
        total = groups.sum(ties)
        return 0.5 * ties / groups.expand(torch.where(total == 0, 1.0, total))

    return fraction(edges[0]) + fraction(edges[1])


def power_mean_vjp(
    grad: Tensor,
    z: Tensor,
    s: Tensor,
    power: float,
    weight: Tensor | None,
    groups: Grouping,
    *,
    need_weight: bool = False,
) -> Gradients:
    """Gradients of s = (Σ ω|z|^q / M)^(1/q) from the gradient of its value."""
    if power == math.inf:
        ties = (z.abs() == groups.expand(s)).to(z.dtype) * z.sign().detach()
        if weight is not None:
            ties = torch.where(weight > 0, ties, 0.0)
        count = groups.sum(ties.abs())
        per_tie = grad / torch.where(count == 0, 1.0, count)
        return Gradients(groups.expand(per_tie) * ties, None, torch.zeros_like(z) if need_weight else None)
    safe = torch.where(s == 0, 1.0, s)
    ratio = z / groups.expand(safe)
    weight_in_units, unit = (None, None) if weight is None else unit_weight(weight, groups, z.dtype)
    mass = (groups.count(z) if weight_in_units is None else groups.sum(weight_in_units)).to(z.dtype)
    gain = groups.expand(grad / torch.where(mass > 0, mass, 1.0))
    slope = ratio.sign() if power == 1 else ratio if power == 2 else ratio.abs().pow(power - 1) * ratio.sign()
    values = gain * slope
    if weight_in_units is not None:
        values = values * weight_in_units
    if not need_weight or unit is None:
        return Gradients(values)
    level = groups.expand(s * unit.to(z.dtype))
    return Gradients(values, None, gain * level * (ratio.abs().pow(power) - 1) / power)


class _FirstOrderOnly(torch.autograd.Function):
    """Passes on a gradient in x and refuses to be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, x: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        raise RuntimeError(
            "the center has no second derivative at phi=1 (median) and phi=inf (midrange): both are piecewise linear "
            "in x; choose a phi strictly between, or differentiate once"
        )
