"""The center as a differentiable function, by the implicit function theorem.

With r = x − μ, w = ω|r|^(φ−2), W = Σw and q = φ − 1, differentiating Σ ω sgn(r)|r|^q = 0 gives

    ∂μ/∂x_i = w_i / W        ∂μ/∂ω_i = sgn(r_i)|r_i|^q / (qW)        ∂μ/∂φ = Σ ω sgn(r)|r|^q ln|r| / (qW)

The backward is written in differentiable tensor operations of x and of the output μ, so that derivatives of any order
come out right wherever they exist. Conventions where they do not:

* φ < 2: |r| is floored at δ = 4·eps·max|x|, the rounding level of r. Values at μ share the gradient.
* φ > 2: a value at μ gets none. A group of equal values shares it equally.
* φ = 1 and φ = ∞: half of the gradient to each of the two values whose midpoint is μ, shared by their ties.
* entries of weight 0 are ignored: they get no gradient, neither in x nor in the weight.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..ops import Axes, Center, Grouping, Segments
from ..ops import center as find_center

_TINY = 1e-30


def implicit_center(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None = None,
) -> Center:
    """The center of every group, differentiable in x, φ and weight. Statistics keep the reduced axes with size 1."""
    batch, size = (groups.index, groups.number) if isinstance(groups, Segments) else (None, 0)
    dims = groups.dims if isinstance(groups, Axes) else (0,)
    return Center(*_ImplicitCenter.apply(x, phi, weight, batch, dims, size, sweeps))  # type: ignore[no-untyped-call]


class _ImplicitCenter(torch.autograd.Function):
    """x, φ and weight to the fields of ``ops.Center``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        phi: float | Tensor,
        weight: Tensor | None,
        batch: Tensor | None,
        dims: tuple[int, ...],
        batch_size: int,
        sweeps: int | None,
    ) -> tuple[Tensor, ...]:
        if batch is not None:
            columns = (len(x), -1) if len(x) else (0, math.prod(x.shape[1:]))
            shape = (batch_size, *x.shape[1:])
            power = _like_statistic(phi, shape, (batch_size, math.prod(x.shape[1:])))
            flat_weight = None if weight is None else weight.reshape(columns)
            found = find_center(x.reshape(columns), power, flat_weight, batch, batch_size, sweeps)
            return tuple(value.reshape(shape) for value in found)
        kept = [d for d in range(x.dim()) if d not in dims]
        sizes = [x.shape[d] for d in kept]
        rows = (math.prod(sizes), math.prod([x.shape[d] for d in dims]))
        shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))

        def as_rows(value: Tensor) -> Tensor:
            return value.permute(*kept, *dims).reshape(rows)

        power = _like_statistic(phi, shape, (rows[0], 1))
        found = find_center(as_rows(x), power, None if weight is None else as_rows(weight), sweeps=sweeps)
        return tuple(value.reshape(shape) for value in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, phi, weight, batch, ctx.dims, ctx.batch_size, _ = inputs
        found = Center(*output)
        ctx.phi = None if isinstance(phi, Tensor) else phi
        ctx.mark_non_differentiable(found.bound, found.sweeps, found.lower, found.upper)
        ctx.save_for_backward(
            x, phi if isinstance(phi, Tensor) else None, weight, batch, found.center, found.lower, found.upper
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, phi, weight, batch, mu, lower, upper = ctx.saved_tensors
        groups: Grouping = Axes(ctx.dims) if batch is None else Segments(batch, ctx.batch_size)
        power: float | Tensor = ctx.phi if phi is None else phi
        if isinstance(power, float) and power in (1, math.inf):
            share = _share_of_edges(x, weight, groups, lower, upper)
            grad_x = _FirstOrderOnly.apply(groups.expand(grad) * share, x)  # type: ignore[no-untyped-call]
            grad_weight = None if weight is None else torch.zeros_like(weight)
            return grad_x, None, grad_weight, None, None, None, None
        edge = None
        if isinstance(power, Tensor):
            edge = (power == 1) | power.isinf()
            power = torch.where(edge, 2.0, power)
        slopes = _Slopes(x, mu, power, weight, groups)
        share = slopes.weight / groups.expand(slopes.total)
        if edge is not None:
            everywhere = groups.expand(edge.expand_as(mu))
            share = torch.where(everywhere, _share_of_edges(x, weight, groups, lower, upper), share)
        grad_phi = grad_weight = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            q = power - 1
            gain = grad * slopes.scale / (slopes.total * (q.to(x.dtype) if isinstance(q, Tensor) else q))
            if edge is not None:
                gain = torch.where(edge, 0.0, gain)
            if ctx.needs_input_grad[1]:
                moment = slopes.signed * slopes.distance.log()
                grad_phi = (
                    (gain * groups.sum(moment if weight is None else moment * weight))
                    .sum_to_size(phi.shape)
                    .to(phi.dtype)
                )
            if ctx.needs_input_grad[2]:
                grad_weight = groups.expand(gain) * slopes.signed
        return groups.expand(grad) * share, grad_phi, grad_weight, None, None, None, None


class _Slopes:
    """The quantities of the implicit derivatives, |r| in units of the group's largest: no power overflows."""

    def __init__(self, x: Tensor, mu: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping) -> None:
        r = x - groups.expand(mu)
        size = x.detach().abs()
        if weight is not None:  # selected, not multiplied: ignored entries may be NaN
            present = weight > 0
            r, size = torch.where(present, r, 0.0), torch.where(present, size, 0.0)
        a = r.abs()
        largest = groups.max(a.detach())
        varied = largest > 0
        self.scale = torch.where(varied, largest, 1.0)
        a = a / groups.expand(self.scale)
        floor = (4 * torch.finfo(x.dtype).eps * groups.max(size) / self.scale).clamp_min(_TINY)
        self.distance = a.clamp_min(_TINY)
        at_center = (a == 0).detach()
        if isinstance(phi, Tensor):
            order = groups.expand(phi.to(x.dtype).expand_as(mu))
            above_2 = order > 2
            base = torch.where(order < 2, torch.maximum(a, groups.expand(floor)), self.distance)
            w = torch.where(at_center & above_2, 0.0, base.pow(order - 2))
            self.signed = self.distance.pow(order - 1) * r.sign()
        else:
            if phi == 2:
                w = torch.ones_like(a)
            elif phi < 2:
                w = torch.maximum(a, groups.expand(floor)).pow(phi - 2)
            else:
                w = torch.where(at_center, 0.0, self.distance.pow(phi - 2))
            self.signed = self.distance.pow(phi - 1) * r.sign()
        w = torch.where(groups.expand(varied), w, 1.0)
        self.weight = w if weight is None else w * weight
        total = groups.sum(self.weight)
        self.total = torch.where(total == 0, 1.0, total)  # an empty segment


def _share_of_edges(x: Tensor, weight: Tensor | None, groups: Grouping, lower: Tensor, upper: Tensor) -> Tensor:
    """½ to the ties of each of the two values whose midpoint is the center."""

    def share(edge: Tensor) -> Tensor:
        ties = (x == groups.expand(edge)).to(x.dtype)
        ties = ties if weight is None else ties * weight
        total = groups.sum(ties)
        return 0.5 * ties / groups.expand(torch.where(total == 0, 1.0, total))

    return share(lower) + share(upper)


def _like_statistic(phi: float | Tensor, shape: tuple[int, ...], flat: tuple[int, int]) -> float | Tensor:
    """φ in the shape of the flattened statistics; one number stays one number."""
    if not isinstance(phi, Tensor):
        return phi
    return phi.reshape(()) if phi.numel() == 1 else phi.expand(shape).reshape(flat)


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
