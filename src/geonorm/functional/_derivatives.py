"""Derivatives of the center and of the spreads, in differentiable tensor operations.

**Center.** With r = x − μ, w = ω|r|^(φ−2), W = Σw and q = φ − 1, differentiating Σ ω sgn(r)|r|^q = 0 gives

    ∂μ/∂x_i = w_i / W        ∂μ/∂ω_i = sgn(r_i)|r_i|^q / (qW)        ∂μ/∂φ = Σ ω sgn(r)|r|^q ln|r| / (qW)

All is written in terms of x and of the output μ, so that derivatives of any order come out right where they exist.
Conventions where they do not:

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

from ..ops import Grouping

_TINY = 1e-30


class Gradients(NamedTuple):
    """What flows back to the values, to the exponent and to the weights."""

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
    interior: bool = False,
) -> Gradients:
    """Gradients of the center from the gradient of its value.

    Args:
        grad: gradient of μ, per group.
        x, mu, phi, weight, groups: as the center was computed.
        edges: the two values whose midpoint is μ; used at φ = 1 and φ = ∞.
        need_phi, need_weight: whether those gradients are wanted.
        floor: a distance per group below which |r| is not followed, if larger than the rounding level.
        interior: a tensor φ is known to lie inside (1, ∞).
    """
    if not isinstance(phi, Tensor) and phi in (1, math.inf):
        share = _share_of_edges(x, weight, groups, edges)
        values: Tensor = _FirstOrderOnly.apply(groups.expand(grad) * share, x)  # type: ignore[no-untyped-call]
        return Gradients(values, None, torch.zeros_like(x) if need_weight else None)
    edge = None
    if isinstance(phi, Tensor) and not interior:
        edge = (phi == 1) | phi.isinf()
        phi = torch.where(edge, 2.0, phi)

    r = x - groups.expand(mu)
    size = x.detach().abs()
    if weight is not None:  # selected, not multiplied: ignored entries may be NaN
        present = weight > 0
        r, size = torch.where(present, r, 0.0), torch.where(present, size, 0.0)
    a = r.abs()
    largest = groups.max(a.detach())
    unit = torch.where(largest > 0, largest, 1.0)  # |r| in units of the largest: no power overflows
    a = a / groups.expand(unit)
    least = 4 * torch.finfo(x.dtype).eps * groups.max(size)
    least = (least if floor is None else torch.maximum(least, floor)) / unit
    w = _slope(a, phi, groups.expand(least.clamp_min(_TINY)), groups, mu)
    w = w if weight is None else w * weight
    total = groups.sum(w)
    total = torch.where(total == 0, 1.0, total)  # an empty segment, or equal values and φ > 2
    share = w / groups.expand(total)
    if edge is not None:
        everywhere = groups.expand(edge.expand_as(mu))
        share = torch.where(everywhere, _share_of_edges(x, weight, groups, edges), share)
    values = groups.expand(grad) * share
    if not (need_phi or need_weight):
        return Gradients(values)

    q = _of_dtype(phi, x) - 1
    distance = a.clamp_min(_TINY)
    signed = distance.pow(q if isinstance(q, float) else groups.expand(q.expand_as(mu))) * r.sign()
    gain = grad * unit / (total * q)
    if edge is not None:
        gain = torch.where(edge, 0.0, gain)
    grad_phi = None
    if need_phi and isinstance(phi, Tensor):
        moment = signed * distance.log()
        moment = groups.sum(moment if weight is None else moment * weight)
        grad_phi = (gain * moment).sum_to_size(phi.shape).to(phi.dtype)
    return Gradients(values, grad_phi, groups.expand(gain) * signed if need_weight else None)


def _slope(a: Tensor, phi: float | Tensor, least: Tensor, groups: Grouping, mu: Tensor) -> Tensor:
    """|r|^(φ−2) with the conventions at r = 0. A group of equal values has a = 0 throughout, and equal slopes."""
    if isinstance(phi, Tensor):
        order = groups.expand(_of_dtype(phi, a).expand_as(mu))  # type: ignore[union-attr]
        base = torch.where(order < 2, torch.maximum(a, least), a.clamp_min(_TINY))
        return torch.where((order > 2) & _is_isolated_zero(a, groups), 0.0, base.pow(order - 2))
    if phi == 2:
        return torch.ones_like(a)
    if phi < 2:
        return torch.maximum(a, least).pow(phi - 2)
    return torch.where(_is_isolated_zero(a, groups), 0.0, a.clamp_min(_TINY).pow(phi - 2))


def _is_isolated_zero(a: Tensor, groups: Grouping) -> Tensor:
    """Values at the center of a group whose values differ."""
    a = a.detach()
    return (a == 0) & groups.expand(groups.max(a) > 0)


def _of_dtype(phi: float | Tensor, x: Tensor) -> float | Tensor:
    return phi.to(x.dtype) if isinstance(phi, Tensor) else phi


def _share_of_edges(x: Tensor, weight: Tensor | None, groups: Grouping, edges: tuple[Tensor, Tensor]) -> Tensor:
    """½ to the ties of each of the two values whose midpoint is the center."""

    def share(edge: Tensor) -> Tensor:
        ties = (x == groups.expand(edge)).to(x.dtype)
        ties = ties if weight is None else ties * weight
        total = groups.sum(ties)
        return 0.5 * ties / groups.expand(torch.where(total == 0, 1.0, total))

    return share(edges[0]) + share(edges[1])


def power_mean_vjp(
    grad: Tensor,
    z: Tensor,
    s: Tensor,
    power: float,
    weight: Tensor | None,
    groups: Grouping,
    mass: Tensor,
    *,
    need_weight: bool = False,
) -> Gradients:
    """Gradients of s = (Σ ω|z|^q / M)^(1/q) from the gradient of its value. ``mass`` is M."""
    if math.isinf(power):
        ties = (z.abs() == groups.expand(s)).to(z.dtype) * z.sign().detach()
        if weight is not None:
            ties = torch.where(weight > 0, ties, 0.0)
        count = groups.sum(ties.abs())
        share = grad / torch.where(count == 0, 1.0, count)
        return Gradients(groups.expand(share) * ties, None, torch.zeros_like(z) if need_weight else None)
    safe = torch.where(s == 0, 1.0, s)
    ratio = z / groups.expand(safe)
    gain = groups.expand(grad / torch.where(mass > 0, mass, 1.0).to(z.dtype))
    slope = ratio.sign() if power == 1 else ratio if power == 2 else ratio.abs().pow(power - 1) * ratio.sign()
    values = gain * slope
    if weight is not None:
        values = values * weight
    if not need_weight:
        return Gradients(values)
    return Gradients(values, None, gain * groups.expand(s) * (ratio.abs().pow(power) - 1) / power)


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
