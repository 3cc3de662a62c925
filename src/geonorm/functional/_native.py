"""The normalization by the native kernels: which calls they take, and their place in autograd.

``plan`` is the one place that decides between native and torch. What it turns down, and what the kernels refuse once
they see the data, runs on torch: other devices, tracing and transforms, element weights, spreads of any exponent, fixed
numbers of sweeps, φ outside of [1.01, 4] other than 1, 2 and ∞, magnitudes beyond 1e±15, unsorted segments.

Backward keeps x, the parameters and a few numbers per group. Asked for a derivative that can be differentiated again,
or for the gradient of a statistic, it repeats the forward on torch and differentiates that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from ..ops import Axes, Grouping, Running, follow_batch, native
from ..ops.arrange import Arrangement, arrange, arrange_segments
from ._gaussian import robust_factor
from ._norm import Inputs, NormStatistics, Rule
from ._spread import MEAN_ABS_FACTOR

_COMPUTING = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
_SPREADS = {2.0: native.RMS, 1.0: native.MEAN_ABS, math.inf: native.MAX_ABS, None: native.ROBUST}
_LARGEST_SPREAD_PHI = 3.0  # above, equal deviations would lose their part of the gradient
CPU = torch.device("cpu")  # named at every allocation: there may be a default device
_NOTHING = (None,) * 4

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

Again = Callable[..., tuple[Tensor, NormStatistics]]


class Plan(NamedTuple):
    """A call that the kernels take."""

    arrangement: Arrangement
    numbers: native.Numbers
    offsets: Tensor | None
    strides: tuple[int, ...]  # of x as the kernels read it
    dtype: torch.dtype  # computing


def _is_plain(value: Any) -> bool:
    """A tensor in the memory of this machine, seen through no wrapper."""
    if type(value) is not Tensor and type(value) is not Parameter:
        return False
    return value.is_cpu and not _is_wrapped(value)


def plan(of: Inputs, groups: Grouping, rule: Rule, running: Running | None) -> Plan | None:
    """How to run a normalization natively; None for torch."""
    if torch.compiler.is_compiling() or native.library() is None:
        return None
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return None
    x = of.x
    if of.weight is not None or rule.sweeps is not None or rule.scale_first or rule.power not in _SPREADS:
        return None
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    for value in of[1:6]:
        if value is None or type(value) is float:
            shapes += (None,)
        elif _is_plain(value):
            shapes += (value.shape,)  # type: ignore[union-attr]
        else:
            return None
    if not _is_plain(x):
        return None
    dtype = _COMPUTING.get(x.dtype)
    if dtype is None or x.layout is not torch.strided or x.is_neg() or torch._C._len_torch_dispatch_stack():
        return None
    if torch._C._get_tracing_state() is not None:
        return None
    if rule.power is None and not 1.01 <= rule.spread_phi <= _LARGEST_SPREAD_PHI:
        return None
    phi_shape, shapes = shapes[0], shapes[1:]
    strides, offsets = x.stride(), None
    if isinstance(groups, Axes):
        arrangement = arrange(x.shape, strides, groups.dims, shapes, phi_shape)
        if arrangement is None:  # as a contiguous copy
            strides = _contiguous_strides(x.shape)
            arrangement = arrange(x.shape, strides, groups.dims, shapes, phi_shape)
    else:
        if x.shape[0] != len(groups.index) or not _is_plain(groups.index):
            return None
        strides = _contiguous_strides(x.shape)
        arrangement = arrange_segments(x.shape, groups.number, shapes, phi_shape)
        if arrangement is not None:
            offsets = native.segment_offsets(groups.index, groups.number)
            if offsets is None:
                return None
    if arrangement is None:
        return None
    factor = 0.0 if running is None else float(running.factor)
    numbers = native.Numbers(
        of.phi if not isinstance(of.phi, Tensor) else 0.0,
        of.alpha if not isinstance(of.alpha, Tensor) else 0.0,
        rule.eps,
        rule.spread_phi,
        robust_factor(rule.spread_phi) if rule.power is None else 1.0,
        rule.spread_floor * MEAN_ABS_FACTOR,
        rule.grad_floor,
        factor,
        rule.centered,
        _SPREADS[rule.power] if rule.scaled else native.NO_SPREAD,
    )
    return Plan(arrangement, numbers, offsets, strides, dtype)


def _contiguous_strides(shape: torch.Size) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(1, shape[d + 1])
    return tuple(strides)


def _dense(value: Tensor, like: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The value in the dtype of x and with the strides that the kernels read."""
    if value.dtype == like.dtype and value.stride() == strides and not value.is_neg():
        return value
    return torch.empty_strided(value.shape, strides, dtype=like.dtype, device=CPU).copy_(value)


def _expanded(value: float | Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    """A parameter in the computing dtype, contiguous, of the common shape."""
    if not isinstance(value, Tensor):
        return None
    value = value.detach().resolve_neg()
    if value.dtype != dtype:
        value = value.to(dtype)
    if value.numel() != math.prod(shape):
        value = value.expand(shape)
    return value if value.is_contiguous() else value.contiguous()


def _parameters(of: Inputs, plan: Plan) -> tuple[Tensor | None, ...]:
    """φ, α, shift, γ, β as the kernels read them."""
    shape, dtype = plan.arrangement.parameter_shape, plan.dtype
    phi = _expanded(of.phi, plan.arrangement.phi_shape, dtype)
    return phi, *[_expanded(value, shape, dtype) for value in (of.alpha, of.shift, of.gamma, of.beta)]


def run(
    of: Inputs, plan: Plan, running: Running | None, measured: bool, again: Again
) -> tuple[Tensor, NormStatistics | None] | None:
    """Output and statistics (if ``measured``); None if the kernels refuse the data. ``again``: the same on torch."""
    a = plan.arrangement
    buffers: tuple[Tensor | None, ...] = _NOTHING
    follows = running is not None and _can_follow(running, a, plan.dtype)
    if follows and running is not None:
        buffers = running[:4]
    shape, dtype = a.statistics_shape, plan.dtype
    x = of.x.detach()
    if x.stride() != plan.strides:
        x = _dense(x, x, plan.strides)
    y = torch.empty_strided(x.shape, plan.strides, dtype=x.dtype, device=CPU)
    state = torch.empty(a.groups * native.state_size(), dtype=torch.float64, device=CPU)
    statistics: tuple[Tensor | None, ...] = _NOTHING
    if measured or (running is not None and not follows):
        statistics = tuple([torch.empty(shape, dtype=dtype, device=CPU) for _ in range(4)])
    parameters = _parameters(of, plan)
    if not native.forward(x, y, a, plan.numbers, plan.offsets, parameters, state, statistics, buffers):
        return None
    if follows:
        torch.autograd.graph.increment_version([buffer for buffer in buffers if buffer is not None])
    if torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in of[:6]):
        made = _Made(y, state, statistics, parameters, plan, again)
        y, *statistics = _Native.apply(*of[:6], made)  # type: ignore
    if statistics is _NOTHING or statistics[0] is None:
        return y, None
    found = NormStatistics(*statistics, mass=_mass(plan))  # type: ignore
    if running is not None and not follows:
        follow_batch(running, *found)
    return y, found


def _can_follow(running: Running, a: Arrangement, dtype: torch.dtype) -> bool:
    if running.over or a.segments != 1 or a.groups != running.mean.numel():
        return False
    buffers = [buffer for buffer in running[:4] if isinstance(buffer, Tensor)]
    return all(b.dtype == dtype and b.numel() == a.groups and b.is_contiguous() and _is_plain(b) for b in buffers)


def _mass(plan: Plan) -> Tensor:
    a = plan.arrangement
    if plan.offsets is None:
        return torch.full(a.statistics_shape, float(a.members), dtype=torch.float64, device=CPU)
    count = plan.offsets.diff().double()
    return count.reshape(-1, *[1] * (len(a.statistics_shape) - 1)).expand(a.statistics_shape)


class _Made(NamedTuple):
    """What the kernels have computed. Not as arguments of the function: autograd would take its outputs for views."""

    y: Tensor
    state: Tensor
    statistics: tuple[Tensor | None, ...]
    parameters: tuple[Tensor | None, ...]
    plan: Plan
    again: Again


class _Native(torch.autograd.Function):
    """The tensors of one normalization to the results that the kernels have already computed."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        phi: float | Tensor,
        alpha: float | Tensor,
        shift: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        made: _Made,
    ) -> tuple[Tensor | None, ...]:
        tensors = [value if isinstance(value, Tensor) else None for value in (phi, alpha)]
        # β's gradient needs its shape only: not saved, it may be changed in place meanwhile.
        ctx.beta = None if beta is None else (beta.shape, beta.dtype)
        # The parameters as the kernels read them are aliases of the saved ones, or copies.
        y, ctx.state, statistics, ctx.parameters, ctx.plan, ctx.again = made
        ctx.numbers = [None if isinstance(value, Tensor) else value for value in (phi, alpha)]
        ctx.save_for_backward(x, *tensors, shift, gamma)
        ctx.set_materialize_grads(False)
        if statistics[0] is not None:
            ctx.mark_non_differentiable(*statistics[2:])
        return y, *statistics

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, phi, alpha, shift, gamma = ctx.saved_tensors
        needs = ctx.needs_input_grad[:6]
        plain = grads[0] is None or (_is_plain(grads[0]) and torch._C._has_storage(grads[0]))  # not a batch of them
        if torch.is_grad_enabled() or grads[1] is not None or grads[2] is not None or not plain:
            phi, alpha = ctx.numbers[0] if phi is None else phi, ctx.numbers[1] if alpha is None else alpha
            beta = None if ctx.beta is None else torch.zeros(ctx.beta[0], dtype=ctx.beta[1], device=CPU)
            found = _through_torch(Inputs(x, phi, alpha, shift, gamma, beta, None), needs, grads, ctx.again)
        elif grads[0] is None:
            found = (None,) * 6
        else:
            kinds = [None if v is None else (v.shape, v.dtype) for v in (phi, alpha, shift, gamma)]
            found = _gradients(x, needs, grads[0], ctx.plan, ctx.state, ctx.parameters, [*kinds, ctx.beta])
        return *found, None


def _gradients(
    x: Tensor,
    needs: tuple[bool, ...],
    grad: Tensor,
    plan: Plan,
    state: Tensor,
    parameters: tuple[Tensor | None, ...],
    kinds: list[tuple[torch.Size, torch.dtype] | None],
) -> tuple[Tensor | None, ...]:
    """By the kernels. ``kinds``: shape and dtype of φ, α, shift, γ and β."""
    a = plan.arrangement
    x = _dense(x, x, plan.strides)
    g = _dense(grad, x, plan.strides)
    dx = torch.empty_strided(x.shape, plan.strides, dtype=x.dtype, device=CPU)
    shapes = (a.phi_shape, *[a.parameter_shape] * 4)
    found = tuple(
        [
            torch.empty(shape, dtype=plan.dtype, device=CPU) if need else None
            for need, shape in zip(needs[1:], shapes, strict=True)
        ]
    )
    native.backward(x, g, dx, a, plan.numbers, plan.offsets, parameters, state, found)
    return dx, *[
        None if grad is None or kind is None else _like(grad, *kind) for grad, kind in zip(found, kinds, strict=True)
    ]


def _like(grad: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """In the shape and dtype of a parameter that may have been expanded."""
    if grad.shape != shape:
        grad = grad.reshape(shape) if grad.numel() == shape.numel() else grad.sum_to_size(shape)
    return grad if grad.dtype == dtype else grad.to(dtype)


def _alias(value: Any, need: bool, keep: bool) -> Any:
    if not need or not isinstance(value, Tensor):
        return value
    return value.view_as(value) if keep and value.requires_grad else value.detach().requires_grad_()


def _through_torch(
    of: Inputs, needs: tuple[bool, ...], grads: tuple[Tensor | None, ...], again: Again
) -> tuple[Tensor | None, ...]:
    """The gradients by the differentiable path, from a forward on torch."""
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases: paths from one input to another are autograd's own work, and so are the hooks of the inputs.
        alias = [_alias(v, need, keep) for v, need in zip(of[:6], needs, strict=True)]
        of = Inputs(alias[0], alias[1], alias[2], alias[3], alias[4], alias[5], None)
        y, statistics = again(of)
        pairs = [(out, grad) for out, grad in zip((y, *statistics[:2]), grads[:3], strict=True) if grad is not None]
        wanted = [value for value, need in zip(of, needs, strict=False) if need and isinstance(value, Tensor)]
        found = iter(
            torch.autograd.grad(
                [out for out, _ in pairs], wanted, [grad for _, grad in pairs], create_graph=keep, allow_unused=True
            )
        )
    return tuple([next(found) if need else None for need in needs])
