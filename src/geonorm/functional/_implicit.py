"""The center as a differentiable function: found by the operator, differentiated by the implicit function theorem."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..distributed import Across
from ..ops import Axes, Center, Grouping, Segments
from ..ops import center as find_center
from ._derivatives import center_vjp


def implicit_center(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None = None
) -> Center:
    """The center of every group, differentiable in x, φ and weight. Statistics keep the reduced axes with size 1."""
    arguments = visible(x, phi, weight)
    return Center(*_ImplicitCenter.apply(*arguments, *unpack(groups)[:3], sweeps))  # type: ignore[no-untyped-call]


def visible(*arguments: Any) -> tuple[Any, ...]:
    """The arguments, tensors as views while a compiler traces.

    Dynamo does not see that the direct input of a torch.func transform needs a gradient, and would trace through an
    autograd.Function applied to it as if it had no backward. It does see it of a view.
    """
    if not torch.compiler.is_compiling():
        return arguments
    return tuple([value.view_as(value) if isinstance(value, Tensor) else value for value in arguments])


def center_of_groups(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None = None,
    interior: bool = False,
) -> Center:
    """The center of every group, without a gradient: x in the layout of the operator, and its answers back."""
    if isinstance(groups, Segments):
        features = math.prod(x.shape[1:])
        shape: tuple[int, ...] = (groups.number, *x.shape[1:])
        flat = (groups.number, features)

        def lay_out(value: Tensor) -> Tensor:
            return value.reshape(value.shape[0], features)
    else:
        kept = [d for d in range(x.dim()) if d not in groups.dims]
        rows = math.prod([x.shape[d] for d in kept])
        members = math.prod([x.shape[d] for d in groups.dims])
        shape = tuple(1 if d in groups.dims else n for d, n in enumerate(x.shape))
        flat = (rows, 1)

        def lay_out(value: Tensor) -> Tensor:
            return value.permute(*kept, *groups.dims).reshape(rows, members)

    power = phi
    if isinstance(phi, Tensor):  # one number stays one number
        power = phi.reshape(()) if phi.numel() == 1 else phi.expand(shape).reshape(flat)
    share = None if weight is None else lay_out(weight)
    laid_out = groups if isinstance(groups, Segments) else groups.rows()
    found = find_center(lay_out(x), power, share, laid_out, sweeps, interior)
    return Center(*[value.reshape(shape) for value in found])


def unpack(groups: Grouping) -> tuple[Tensor | None, tuple[int, ...], int, str]:
    """A grouping as arguments that autograd.Function, vmap and the compiler can carry.

    The tensor is the segment of each row, or the size of joint groups if it is known.
    """
    if isinstance(groups, Segments):
        return groups.index, (0,), groups.number, ""
    return (groups.total, groups.dims, 0, groups.name) if isinstance(groups, Across) else (None, groups.dims, 0, "")


def pack(members: Tensor | None, dims: tuple[int, ...], number: int, name: str = "") -> Grouping:
    """The grouping again."""
    if name:
        return Across(dims, name, members)
    return Axes(dims) if members is None else Segments(members, number)


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
        number: int,
        sweeps: int | None,
    ) -> tuple[Tensor, ...]:
        return tuple(center_of_groups(x, phi, weight, pack(batch, dims, number), sweeps))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, phi, weight, batch, ctx.dims, ctx.number, _ = inputs
        found = Center(*output)
        ctx.phi = None if isinstance(phi, Tensor) else phi
        ctx.mark_non_differentiable(found.bound, found.sweeps, found.lower, found.upper)
        saved_phi = phi if isinstance(phi, Tensor) else None
        ctx.save_for_backward(x, saved_phi, weight, batch, found.center, found.lower, found.upper)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, phi, weight, batch, mu, lower, upper = ctx.saved_tensors
        _, need_phi, need_weight, *_ = ctx.needs_input_grad
        groups = pack(batch, ctx.dims, ctx.number)
        power: float | Tensor = ctx.phi if phi is None else phi
        grads = center_vjp(
            grad, x, mu, power, weight, groups, (lower, upper), need_phi=need_phi, need_weight=need_weight
        )
        return *grads, None, None, None, None
