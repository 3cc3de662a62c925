"""The normalization by the native kernels: which calls they take, and their place in autograd.

``plan`` is the one place that decides between native and torch. What it turns down, and what the kernels refuse once
they see the data, runs on torch: other devices, tracing and transforms, element weights, spreads of any exponent, fixed
numbers of sweeps, φ outside of [1.01, 4] other than 1 and ∞, magnitudes above 1e15 or below 1e-18 (in float64 1e120
and 1e-123), unsorted segments.

Backward keeps x, the parameters and a few numbers per group. Asked for a derivative that can be differentiated again,
or for the gradient of a statistic, it repeats the forward on torch and differentiates that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from ..ops import Axes, Grouping, Running, follow_batch, native, refresh_seen
from ..ops.arrange import LANES, Arrangement, arrange, arrange_segments
from ._arguments import per_group_shape
from ._gaussian import robust_factor
from ._norm import Inputs, LearnedPhi, NormStatistics, Rule
from ._spread import mean_abs_factor

_COMPUTING = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
_SPREADS = {2.0: native.RMS, 1.0: native.MEAN_ABS, math.inf: native.MAX_ABS, None: native.ROBUST}
_MOST_ROWS = 1 << 24  # of interleaved channels: the kernels copy them up to 32 channels wide, two such arrays in 4 GB
_LARGEST_SPREAD_PHI = 3.0  # above, equal deviations would lose their part of the gradient
CPU = torch.device("cpu")  # named at every allocation: there may be a default device
_NOTHING = (None,) * 5

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

Again = Callable[[Inputs, Tensor | None], tuple[Tensor, NormStatistics]]  # the inputs, and the segment of each row


class Plan(NamedTuple):
    """A call that the kernels take."""

    arrangement: Arrangement
    kind: bytes  # of the tensors, as the kernels read it
    strides: tuple[int, ...]  # of x as the kernels read it
    dtype: torch.dtype  # computing
    guarded: bool
    offsets: Tensor | None = None
    members: Tensor | None = None  # the segment of each row


def _is_plain(value: Any) -> bool:
    """A tensor in the memory of this machine, seen through no wrapper."""
    if type(value) is not Tensor and type(value) is not Parameter:
        return False
    return value.is_cpu and not _is_wrapped(value)


def plan(of: Inputs, groups: Grouping, rule: Rule, learned: LearnedPhi | None = None) -> Plan | None:
    """How to run a normalization natively; None for torch."""
    if torch.compiler.is_compiling() or native.library() is None:
        return None
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return None
    x, phi, alpha, *_ = of
    if of.weight is not None or not _is_plain(x) or x.layout is not torch.strided or x.is_neg():
        return None
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return None
    shapes: list[torch.Size | None] = []
    for value in of[1:6]:
        if value is None or type(value) is float:
            shapes.append(None)
        elif _is_plain(value):
            shapes.append(value.shape)  # type: ignore[union-attr]
        else:
            return None
    numbers = (phi if type(phi) is float else 0.0, alpha if type(alpha) is float else 0.0)
    between = None if learned is None else learned[1:]
    if isinstance(groups, Axes):
        return _plan(x.shape, x.stride(), x.dtype, groups.dims, None, tuple(shapes), numbers, between, rule)
    if x.shape[0] != len(groups.index) or not _is_plain(groups.index):
        return None
    found = _plan(x.shape, (), x.dtype, (), groups.number, tuple(shapes), numbers, between, rule)
    offsets = None if found is None else native.segment_offsets(groups.index, groups.number)
    return None if found is None or offsets is None else found._replace(offsets=offsets, members=groups.index)


@lru_cache(maxsize=1024)
def _plan(
    shape: torch.Size,
    strides: tuple[int, ...],
    x_dtype: torch.dtype,
    dims: tuple[int, ...],
    segments: int | None,
    shapes: tuple[torch.Size | None, ...],
    numbers: tuple[float, float],
    between: tuple[float, ...] | None,
    rule: Rule,
) -> Plan | None:
    """The part of a plan that is the same for all tensors of one kind. ``shapes``: of φ, α, shift, γ and β."""
    dtype = _COMPUTING.get(x_dtype)
    if dtype is None or rule.sweeps is not None or rule.scale_first or rule.power not in _SPREADS:
        return None
    if rule.power is None and not 1.01 <= rule.spread_phi <= _LARGEST_SPREAD_PHI:
        return None
    phi = shapes[0]
    if between is not None and phi is not None:
        phi = torch.Size(per_group_shape(phi, shape, dims, "phi"))
    if segments is None:
        arrangement = arrange(shape, strides, dims, shapes[1:], phi)
    else:
        arrangement = arrange_segments(shape, segments, shapes[1:], phi)
    if arrangement is None and segments is None:  # as a contiguous copy
        strides = _contiguous_strides(shape)
        arrangement = arrange(shape, strides, dims, shapes[1:], phi)
    if arrangement is None or (arrangement.layout == LANES and arrangement.rows > _MOST_ROWS):
        return None
    choices = native.Numbers(
        rule.centered,
        _SPREADS[rule.power] if rule.scaled else native.NO_SPREAD,
        *((0, 0) if rule.guard is None else (shape[0], math.prod(shape[2:]))),
        *numbers,
        rule.eps,
        rule.spread_phi,
        robust_factor(rule.spread_phi) if rule.power is None else 1.0,
        rule.spread_floor * mean_abs_factor(),
        rule.grad_floor,
        rule.guard or 0.0,
        *(between or ()),
    )
    strides = strides if segments is None else _contiguous_strides(shape)
    if rule.guard is not None and not _samples_are_apart(arrangement, shape, dims):
        return None
    return Plan(arrangement, native.kind(x_dtype, arrangement, choices), strides, dtype, rule.guard is not None)


def _samples_are_apart(a: Arrangement, shape: torch.Size, dims: tuple[int, ...]) -> bool:
    """Whether the kernels see samples, of x as (N, C, *): a run each, or some rows each."""
    if dims != (0, *range(2, len(shape))):
        return False
    samples, positions = shape[0], math.prod(shape[2:])
    if a.layout == LANES:
        return a.segments == 1 and a.rows == samples * positions
    return a.runs == samples and a.run_stride == a.groups * a.length


def _contiguous_strides(shape: torch.Size) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(1, shape[d + 1])
    return tuple(strides)


def _dense(value: Tensor, like: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The value in the dtype of x and with the strides that the kernels read."""
    if value.dtype == like.dtype and value.stride() == strides and not value.is_neg():
        return value
    return torch.empty_strided(value.shape, strides, dtype=like.dtype, device=CPU).copy_(value.detach())


def _laid_out(value: Tensor, like: Tensor) -> Tensor:
    """What the kernels have made of a copy, in the memory order of the original, as torch's own functions do."""
    if like.stride() == value.stride():
        return value
    wanted = torch.empty_like(like)
    return value if wanted.stride() == value.stride() else wanted.copy_(value)


def _expanded(value: float | Tensor | None, shape: tuple[int, ...], count: int, dtype: torch.dtype) -> Tensor | None:
    """A parameter in the computing dtype, contiguous, of the common shape with ``count`` entries."""
    if not isinstance(value, Tensor):
        return None
    if value.dtype == dtype and value.numel() == count and value.is_contiguous() and not value.is_neg():
        return value
    value = value.detach().resolve_neg().to(dtype)
    return (value if value.numel() == count else value.expand(shape)).contiguous()


def _parameters(of: Inputs, plan: Plan) -> tuple[Tensor | None, ...]:
    """φ, α, shift, γ, β as the kernels read them."""
    a, dtype = plan.arrangement, plan.dtype
    shape, count = a.parameter_shape, a.parameter_count
    phi = _expanded(of.phi, a.phi_shape, a.phi_count, dtype)
    return phi, *[_expanded(value, shape, count, dtype) for value in (of.alpha, of.shift, of.gamma, of.beta)]


def run(
    of: Inputs, plan: Plan, running: Running | None, measured: bool, again: Again, counts: Tensor | None = None
) -> tuple[Tensor, NormStatistics | None] | None:
    """Output and statistics (if ``measured``); None if the kernels refuse the data. ``again``: the same on torch."""
    a, dtype = plan.arrangement, plan.dtype
    verdict = None if not plan.guarded else torch.empty(2 * (len(of.x) + a.groups) + 1, dtype=dtype, device=CPU)
    buffers: tuple[Tensor | None, ...] = _NOTHING
    factor, follows = 0.0, False
    if running is not None and _can_follow(running, a, dtype):
        buffers, factor, follows = (*running[:4], running.batches), float(running.factor), True
    x = _dense(of.x, of.x, plan.strides)
    y = torch.empty_strided(x.shape, plan.strides, dtype=x.dtype, device=CPU)
    state = torch.empty(a.groups * native.state_size(), dtype=torch.float64, device=CPU)
    statistics: tuple[Tensor | None, ...] = _NOTHING[:4]
    if measured or (running is not None and not follows):
        statistics = tuple([torch.empty(a.statistics_shape, dtype=dtype, device=CPU) for _ in range(4)])
        measured = True
    parameters = _parameters(of, plan)
    if not native.forward(
        plan.kind, x, y, plan.offsets, parameters, state, statistics, buffers, factor, verdict, counts
    ):
        return None
    y = _laid_out(y, of.x)
    if follows:
        torch.autograd.graph.increment_version([buffer for buffer in buffers if buffer is not None])
        assert running is not None
        refresh_seen(running)
    if torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in of[:6]):
        made = _Made(y, state, statistics, plan, again, verdict)
        outputs = _apply(*of[:6], made)
        y, statistics = (outputs[0], outputs[1:]) if measured else (outputs, statistics)
    if not measured:
        return y, None
    found = NormStatistics(*statistics, mass=_mass(plan))  # type: ignore
    if running is not None and not follows:
        follow_batch(running, *found)
    return y, found


def _can_follow(running: Running, a: Arrangement, dtype: torch.dtype) -> bool:
    if running.over or a.segments != 1 or a.groups != running.mean.numel():
        return False
    for buffer in running[:4]:
        if isinstance(buffer, Tensor) and not (
            buffer.dtype == dtype and buffer.numel() == a.groups and buffer.is_contiguous() and _is_plain(buffer)
        ):
            return False
    return running.batches is None or (running.batches.dtype == torch.int64 and _is_plain(running.batches))


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
    plan: Plan
    again: Again
    verdict: Tensor | None  # of a guarded batch


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
    ) -> Tensor | tuple[Tensor | None, ...]:
        tensors = [value if isinstance(value, Tensor) else None for value in (phi, alpha)]
        # β's gradient needs its shape only: not saved, it may be changed in place meanwhile.
        ctx.beta = None if beta is None else (beta.shape, beta.dtype)
        y, state, statistics, plan, ctx.again, verdict = made
        ctx.plan = plan if plan.offsets is None else plan._replace(offsets=None, members=None)
        ctx.numbers = [None if isinstance(value, Tensor) else value for value in (phi, alpha)]
        # No tensor but by this call: what it keeps is freed after backward, however long the loss lives.
        ctx.save_for_backward(x, *tensors, shift, gamma, state, verdict, plan.offsets, plan.members)
        ctx.set_materialize_grads(False)
        if statistics[0] is None:
            return y
        ctx.mark_non_differentiable(*statistics[2:])
        return y, *statistics

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grads = (*grads, None, None) if len(grads) == 1 else grads
        x, phi, alpha, shift, gamma, state, verdict, offsets, members = ctx.saved_tensors
        needs = ctx.needs_input_grad[:6]
        plain = grads[0] is None or (_is_plain(grads[0]) and torch._C._has_storage(grads[0]))  # not a batch of them
        if torch.is_grad_enabled() or grads[1] is not None or grads[2] is not None or not plain:
            phi, alpha = ctx.numbers[0] if phi is None else phi, ctx.numbers[1] if alpha is None else alpha
            beta = None if ctx.beta is None else torch.zeros(ctx.beta[0], dtype=ctx.beta[1], device=CPU)
            found = _through_torch(Inputs(x, phi, alpha, shift, gamma, beta, None), needs, grads, ctx.again, members)
        elif grads[0] is None:
            found = (None,) * 6
        else:
            kinds = [None if v is None else (v.shape, v.dtype) for v in (phi, alpha, shift, gamma)]
            phi, alpha = 0.0 if phi is None else phi, 0.0 if alpha is None else alpha
            of = Inputs(x, phi, alpha, shift, gamma, None, None)
            plan = ctx.plan if offsets is None else ctx.plan._replace(offsets=offsets)
            found = _gradients(of, needs, grads[0], plan, state, [*kinds, ctx.beta], verdict)
        return *found, None


# Past Function.apply, which looks for torch.func transforms; ``plan`` has done so.
_apply: Any = super(torch.autograd.Function, _Native).apply


def _gradients(
    of: Inputs,
    needs: tuple[bool, ...],
    grad: Tensor,
    plan: Plan,
    state: Tensor,
    kinds: list[tuple[torch.Size, torch.dtype] | None],
    verdict: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """By the kernels. ``kinds``: shape and dtype of φ, α, shift, γ and β."""
    a, parameters = plan.arrangement, _parameters(of, plan)
    x = _dense(of.x, of.x, plan.strides)
    g = _dense(grad, x, plan.strides)
    dx = torch.empty_strided(x.shape, plan.strides, dtype=x.dtype, device=CPU)
    found: list[Tensor | None] = []
    for i, need in enumerate(needs[1:]):
        if not need:
            found.append(None)
            continue
        kind, expanded, count = kinds[i], a.parameter_shape, a.parameter_count
        if i == 0:
            expanded, count = a.phi_shape, a.phi_count
        shape = expanded if kind is None or kind[0].numel() != count else kind[0]
        found.append(torch.empty(shape, dtype=plan.dtype, device=CPU))
    native.backward(plan.kind, x, g, dx, plan.offsets, parameters, state, tuple(found), verdict)
    for i, part in enumerate(found):
        kind = kinds[i]
        if part is not None and kind is not None:
            found[i] = _like(part, *kind)
    return _laid_out(dx, of.x), *found


def _like(grad: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """In the shape and dtype of a parameter that may have been expanded."""
    grad = grad if grad.shape == shape else grad.sum_to_size(shape)
    return grad if grad.dtype == dtype else grad.to(dtype)


def _alias(value: Any, need: bool, keep: bool) -> Any:
    if not need or not isinstance(value, Tensor):
        return value
    return value.view_as(value) if keep and value.requires_grad else value.detach().requires_grad_()


def _through_torch(
    of: Inputs, needs: tuple[bool, ...], grads: tuple[Tensor | None, ...], again: Again, members: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients by the differentiable path, from a forward on torch."""
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases: paths from one input to another are autograd's own work, and so are the hooks of the inputs.
        alias = [_alias(v, need, keep) for v, need in zip(of[:6], needs, strict=True)]
        of = Inputs(alias[0], alias[1], alias[2], alias[3], alias[4], alias[5], None)
        y, statistics = again(of, members)
        pairs = [(out, grad) for out, grad in zip((y, *statistics[:2]), grads[:3], strict=True) if grad is not None]
        wanted = [value for value, need in zip(of, needs, strict=False) if need and isinstance(value, Tensor)]
        found = iter(
            torch.autograd.grad(
                [out for out, _ in pairs], wanted, [grad for _, grad in pairs], create_graph=keep, allow_unused=True
            )
        )
    return tuple([next(found) if need else None for need in needs])
