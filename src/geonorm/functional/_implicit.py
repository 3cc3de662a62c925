"""The center as a differentiable function: found by the operator, differentiated by the implicit function theorem."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..ops import Center, Grouping
from ..ops.problem import grouping_from_args, grouping_to_args
from ..ops.torch.derivatives import center_vjp


def as_views_when_tracing(*arguments: Any) -> tuple[Any, ...]:
    """The arguments, with tensors replaced by views while a compiler traces.

    Dynamo does not notice that the direct input of a torch.func transform needs a gradient, and would trace an
    autograd.Function applied to it as if it had no backward. It does notice it for a view.
    """
    if not torch.compiler.is_compiling():
        return arguments
    return tuple([value.view_as(value) if isinstance(value, Tensor) else value for value in arguments])


def center_in_groups(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
    floor: Tensor | None = None,
) -> Center:
    """The center of every group, differentiable in x, φ and weight. Statistics keep the reduced axes with size 1.

    ``floor``: clamp |x − c| at this distance per group in backward.
    """
    arguments = (
        *as_views_when_tracing(x, phi, weight),
        *grouping_to_args(groups)[:3],
        sweeps,
        phi_strictly_inside,
        floor,
    )
    return Center(*_ImplicitCenter.apply(*arguments))  # type: ignore[no-untyped-call]


class _ImplicitCenter(torch.autograd.Function):
    """Maps x, φ and weight to the fields of ``ops.Center``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        phi: float | Tensor,
        weight: Tensor | None,
        batch: Tensor | None,
        dims: list[int],
        number: int,
        sweeps: int | None,
        phi_strictly_inside: bool,
        floor: Tensor | None,
    ) -> tuple[Tensor, ...]:
        return tuple(ops.center(x, phi, weight, grouping_from_args(batch, dims, number), sweeps, phi_strictly_inside))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, phi, weight, batch, ctx.dims, ctx.number, _, ctx.phi_strictly_inside, floor = inputs
        found = Center(*output)
        ctx.phi = None if isinstance(phi, Tensor) else phi
        ctx.mark_non_differentiable(found.bound, found.sweeps, found.lower, found.upper)
        saved_phi = phi if isinstance(phi, Tensor) else None
        ctx.save_for_backward(x, saved_phi, weight, batch, found.center, found.lower, found.upper, floor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, phi, weight, batch, mu, lower, upper, floor = ctx.saved_tensors
        _, need_phi, need_weight, *_ = ctx.needs_input_grad
        groups = grouping_from_args(batch, ctx.dims, ctx.number)
        power: float | Tensor = ctx.phi if phi is None else phi
        grads = center_vjp(
            grad,
            x,
            mu,
            power,
            weight,
            groups,
            (lower, upper),
            need_phi=need_phi,
            need_weight=need_weight,
            floor=floor,
            phi_strictly_inside=ctx.phi_strictly_inside,
        )
        return *grads, *(None,) * 6
