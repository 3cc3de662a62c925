"""Calls of a layer that are like an earlier one, as a differentiable function straight above the kernels.

The result is that of ``_normalize.normalize``, bit for bit. What is decided there for every call, a ``RepeatedCall``
keeps from the first one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import ops
from ..ops import Axes, Incoming, Inputs, KnownCall, LayerTensors, Rule, Running, Saved
from ._normalize import differentiable_gradients

Values = tuple[float | Tensor | None, ...]


class RepeatedCall(NamedTuple):
    """What all calls of a layer with an input of one shape share. It holds no tensors.

    Attributes:
        kernels: how the kernels run it.
        numbers: φ, α, shift, γ and β; None for tensors.
        shapes: of x and of these as they broadcast over the groups; None for what is not a tensor.
        groups, rule: of the normalization.
    """

    kernels: KnownCall
    numbers: tuple[float | None, ...]
    shapes: tuple[torch.Size | None, ...]
    groups: Axes
    rule: Rule

    def fits(self, x: Tensor, own: LayerTensors) -> bool:
        """Whether a call with this x, of the same shape, may run like the first one."""
        if not ops.may_call_directly(x) or not ops.has_kernels():
            return False
        return self.kernels.fits(x, own)

    def run(self, x: Tensor, own: LayerTensors) -> Tensor | None:
        """The output; None if the kernels refuse the data."""
        if own.updates and ops.statistics_paused():  # as checkpointing does: it compares the tensors kept for backward
            own = own.without_updates()
        if torch.is_grad_enabled():
            output: Tensor | None = _apply(x, *own.values, self, own)
            return output
        found = self.kernels.forward(x, own)
        return None if found is None else found[0]

    def gradients(
        self, grad: Tensor, tensors: tuple[Tensor | None, ...], state: Tensor, samples: Tensor | None, needs: Any
    ) -> tuple[Tensor | None, ...]:
        """Gradients in a case that the kernels alone cannot handle, such as one to be differentiated again."""
        x, gamma, beta = tensors[0], tensors[4], None
        assert x is not None
        if self.kernels.shape_of_beta is not None:  # any tensor like β
            beta = x.new_zeros(self.kernels.shape_of_beta, dtype=x.dtype if gamma is None else gamma.dtype)
        given = (*tensors, beta)
        views: list[Any] = [None, *self.numbers]
        for i, (tensor, shape) in enumerate(zip(given, self.shapes, strict=True)):
            if tensor is not None and shape is not None:
                views[i] = tensor.reshape(shape)
        divisor = self.kernels.divisor
        if divisor != 1:
            views[4] = views[4] / divisor
        of = Inputs._make([*views, None])
        grads, needs = Incoming(grad.reshape(of.x.shape)), (*needs[:6], False)
        if torch.is_grad_enabled() or not torch._C._has_storage(grad):
            found = differentiable_gradients(grads, of, self.groups, self.rule, needs)
        else:
            saved = Saved(state, samples, self.kernels.plan)
            found = ops.normalize_backward(grads, of, self.groups, self.rule, saved, needs)
        parts = [
            part if part is None or tensor is None else part.reshape(tensor.shape)
            for part, tensor in zip(found, given, strict=False)
        ]
        if parts[4] is not None and divisor != 1:
            parts[4] = parts[4] / divisor
        return tuple(parts)


class _Repeated(torch.autograd.Function):
    """Maps x and the parameters to the output."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        phi: float | Tensor,
        alpha: float | Tensor,
        shift: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        call: RepeatedCall,
        own: LayerTensors,
    ) -> Tensor | None:
        found = call.kernels.forward(x, own)
        if found is None:
            return None
        y, state, samples = found
        ctx.call = call
        ctx.set_materialize_grads(False)
        exponent, removed = (value if isinstance(value, Tensor) else None for value in (phi, alpha))
        ctx.save_for_backward(x, exponent, removed, shift, gamma, state, samples)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        *tensors, state, samples = ctx.saved_tensors
        call: RepeatedCall = ctx.call
        found = None
        if not torch.is_grad_enabled() and ops.may_call_directly(grad) and torch._C._has_storage(grad):
            found = call.kernels.backward(grad, tensors, state, samples, ctx.needs_input_grad)
        if found is None:
            found = call.gradients(grad, tuple(tensors), state, samples, ctx.needs_input_grad)
        return *found, None, None


# Skips Function.apply, which checks for torch.func transforms: ``fits`` has done that.
_apply: Any = super(torch.autograd.Function, _Repeated).apply


def may_repeat(of: Inputs, groups: Axes) -> bool:
    """Whether a call runs on the kernels, with all its effects."""
    if groups.joint or ops.statistics_paused() or not ops.has_kernels():
        return False
    return ops.may_call_directly(*of)


def repeated_call(
    x: Tensor,
    values: Values,
    of: Inputs,
    groups: Axes,
    rule: Rule,
    running: Running | None,
    guard_counts: Tensor | None,
    divisor: float = 1.0,
) -> tuple[RepeatedCall, LayerTensors] | None:
    """What further calls like this one share; None if they cannot run this way.

    ``x`` is a layer's input, ``values`` are φ, α, shift, γ and β as the layer owns them: those of ``of`` are views, but
    γ may be that of the layer over a ``divisor``.
    """
    for i, (view, value) in enumerate(zip(of, (x, *values), strict=False)):
        if isinstance(view, Tensor) != isinstance(value, Tensor):
            return None
        if i and isinstance(value, Tensor) and not isinstance(value, Parameter):
            return None  # computed for this call: the next one has another
        divided = divisor != 1 and i == 4
        if (
            isinstance(view, Tensor)
            and isinstance(value, Tensor)
            and view.data_ptr() != value.data_ptr()
            and not divided
        ):
            return None
    found = ops.known_call(x, values, of, groups, rule, running, guard_counts, divisor)
    if found is None:
        return None
    kernels, own = found
    numbers = tuple([None if isinstance(value, Tensor) else value for value in values])
    shapes = tuple([view.shape if isinstance(view, Tensor) else None for view in of[:6]])
    return RepeatedCall(kernels, numbers, shapes, groups, rule), own
