"""The normalization as a differentiable function above the operators.

    z = x − α·c + b           c: the L^φ center of the group; α how much of it is removed; b a shift before the division
    y = γ·z/√(s² + ε) + β     s: a spread of z (or of x itself: ``scale_first``)

Backward keeps x, the parameters and a few numbers per group. For a derivative that can be differentiated again, it
repeats the forward in plain torch operations and differentiates those. Transforms that cannot handle our operators get
the plain operations from the start.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..ops import Axes, Grouping, Incoming, Inputs, NormStatistics, Rule, Running, Saved, Segments, problem
from ..ops.torch import norm
from ..ops.torch import rows as rows_backend
from ..ops.torch.guard import GuardedMoments, Verdict, judge_samples
from ..ops.torch.normalize import with_phi
from ._arguments import check_floor, spread_power
from ._implicit import as_views_when_tracing, center_in_groups
from ._pull import pull_in
from ._spread import robust_exponent


def make_rule(
    spread: str | float,
    spread_phi: float,
    spread_floor: float,
    grad_floor: float = 0.0,
    eps: float = 1e-5,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
    guard: float | None = None,
    learned: tuple[float, float, float] | None = None,
    centered: bool = True,
    scaled: bool = True,
    scale_first: bool = False,
) -> Rule:
    """A rule from the name of a spread and other options."""
    make = _make_rule if torch.compiler.is_compiling() else _known_rule
    return make(
        spread, spread_phi, spread_floor, grad_floor, eps, sweeps, phi_strictly_inside, guard, learned, centered,
        scaled, scale_first,
    )  # fmt: skip


def _make_rule(
    spread: str | float, spread_phi: float, spread_floor: float, grad_floor: float, eps: float, sweeps: int | None,
    phi_strictly_inside: bool, guard: float | None, learned: tuple[float, float, float] | None, centered: bool,
    scaled: bool, scale_first: bool,
) -> Rule:  # fmt: skip
    power = spread_power(spread, "spread")
    check_floor(grad_floor, "grad_floor", of="spread")
    if power is None:
        check_floor(spread_floor, "spread_floor")
        spread_phi = robust_exponent(spread_phi, "spread_phi")
    return Rule(
        power, eps, spread_phi, spread_floor, grad_floor, sweeps, phi_strictly_inside, centered, scaled, scale_first,
        guard, learned,
    )  # fmt: skip


_known_rule = lru_cache(maxsize=1024)(_make_rule)


def normalize(
    of: Inputs,
    groups: Grouping,
    rule: Rule,
    running: Running | None = None,
    measured: bool = True,
    counts: Tensor | None = None,
) -> tuple[Tensor, NormStatistics | None]:
    """The normalized x in x's dtype, and, if ``measured``, the statistics in the computing dtype.

    Entries of weight 0 come out as 0. Updates the buffers of ``running``, and the ``counts`` of guarded samples.
    """
    if groups.joint and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "expected plain autograd for a normalization over several processes (got a torch.func transform, under "
            "which they would exchange wrong numbers); geonorm.unsync(model) makes every process normalize alone"
        )
    index = groups.index if isinstance(groups, Segments) else None
    if ops.may_call_directly(*of, index):
        if torch.is_grad_enabled() and _some_require_grad(of):
            found = _apply(*of, _Call(groups, rule, running, counts, measured))
            return (found[0], NormStatistics(*found[1:])) if measured else (found, None)
        y, saved, _ = ops.normalize(of, groups, rule, running, counts)
        return y, problem.statistics_of(saved.groups, of.x, groups) if measured else None
    if not groups.joint and ops.needs_plain_operations(rule.sweeps):
        y, statistics, samples = _plain_forward(of, groups, rule)
        if running is not None:
            ops.update_running_stats_(running, *statistics)
        if counts is not None and samples is not None:
            ops.count_guarded(counts, samples)
        return y, statistics
    arguments = (*as_views_when_tracing(*of), *problem.grouping_to_args(groups), rule, measured)
    y, rows, samples, *differentiable = _Operator.apply(*arguments)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        ops.update(Saved(rows, samples if rule.guard is not None else None), of.x, groups, running, counts)
    if not measured:
        return y, None
    center, spread = differentiable
    return y, problem.statistics_of(rows, of.x, groups)._replace(center=center, spread=spread)


def _some_require_grad(of: Inputs) -> bool:
    for value in of:  # noqa: SIM110 (a generator takes three times as long)
        if isinstance(value, Tensor) and value.requires_grad:
            return True
    return False


class _Call(NamedTuple):
    """The arguments of a normalization that are not differentiable tensors."""

    groups: Grouping
    rule: Rule
    running: Running | None
    counts: Tensor | None
    measured: bool


class _Direct(torch.autograd.Function):
    """Maps the tensors of one normalization to its output and, if measured, its statistics, without the operators."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        phi: float | Tensor,
        alpha: float | Tensor,
        shift: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        weight: Tensor | None,
        call: _Call,
    ) -> Tensor | tuple[Tensor, ...]:
        groups, rule, running, counts, measured = call
        of = Inputs(x, phi, alpha, shift, gamma, beta, weight)
        y, saved, _ = ops.normalize(of, groups, rule, running, counts)
        _save_for_backward(ctx, of, groups, rule, saved)
        ctx.set_materialize_grads(False)
        if not measured:
            return y
        statistics = problem.statistics_of(saved.groups, x, groups)
        ctx.mark_non_differentiable(statistics.mean, statistics.var, statistics.mass)
        return y, *statistics

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grads = (*grads, None, None) if len(grads) == 1 else grads
        return *_gradients(ctx, *grads[:3]), None


# Skips Function.apply, which checks for torch.func transforms: ``may_call_directly`` has done that.
_apply: Any = super(torch.autograd.Function, _Direct).apply


class _Operator(torch.autograd.Function):
    """Maps the tensors of one normalization to output, saved state and, if measured, center and spread, by operators.

    Without gradients Dynamo counts the parameters of ``forward`` to see whether it takes a context, so ``*arguments``
    cannot be used.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        phi: float | Tensor,
        alpha: float | Tensor,
        shift: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        weight: Tensor | None,
        index: Tensor | None,
        dims: list[int],
        number: int,
        name: str,
        rule: Rule,
        measured: bool,
    ) -> tuple[Tensor, ...]:
        of = Inputs(x, phi, alpha, shift, gamma, beta, weight)
        groups = problem.grouping_from_args(index, dims, number, name)
        if _is_fused(of, groups, rule):
            assert isinstance(groups, Axes)
            y, saved, _ = rows_backend.normalize(of, groups, rule, _guarded_moments)
            rows, samples, by = saved.groups, x.new_empty(0) if saved.samples is None else saved.samples, "torch"
        else:
            arguments = problem.to_arguments(of, groups, rule)
            y, rows, samples = torch.ops.geonorm.normalize(*arguments)
            by = arguments[-1]
        _save_for_backward(ctx, of, groups, rule, Saved(rows, None if rule.guard is None else samples, backend=by))
        ctx.mark_non_differentiable(rows, samples)
        if not measured:  # statistics must get no gradients, not even zeros: the kernels do not support them
            return y, rows, samples
        statistics = problem.statistics_of(rows, x, groups)
        return y, rows, samples, statistics.center, statistics.spread

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return *_gradients(ctx, grads[0], *(grads[3:] or (None, None))), *(None,) * 6


def _is_fused(of: Inputs, groups: Grouping, rule: Rule) -> bool:
    """Whether a compiler sees the steps instead of an operator.

    Around the mean they are elementwise operations and sums, which it fuses with their neighbours, as for BatchNorm.
    """
    return torch.compiler.is_compiling() and not groups.joint and rows_backend.supports(of, groups, rule)


def _guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments:
    """The guard as one small operator, because medians cannot be fused."""
    numbers, total, var, samples = torch.ops.geonorm.guarded_moments(mean, deviation, k)
    return GuardedMoments(Verdict.from_numbers(numbers, *mean.shape), total, var, samples)


def _save_for_backward(ctx: Any, of: Inputs, groups: Grouping, rule: Rule, saved: Saved) -> None:
    """Save the state. Tensors only by ``ctx.save_for_backward``, which frees them after backward."""
    index, *ctx.groups = problem.grouping_to_args(groups)
    ctx.rule, ctx.plan, ctx.backend = rule, saved.plan, saved.backend
    (phi, phi_number), (alpha, alpha_number) = _tensor_or_number(of.phi), _tensor_or_number(of.alpha)
    ctx.numbers = phi_number, alpha_number
    # β's gradient needs only its shape. β is not saved, so that it may be changed in place before backward.
    ctx.beta = None if of.beta is None else (of.beta.shape, of.beta.dtype)
    ctx.save_for_backward(of.x, phi, alpha, of.shift, of.gamma, of.weight, index, saved.groups, saved.samples)


def _tensor_or_number(value: float | Tensor) -> tuple[Tensor | None, float | None]:
    return (value, None) if isinstance(value, Tensor) else (None, value)


def _gradients(
    ctx: Any, grad: Tensor | None, grad_center: Tensor | None, grad_spread: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order, from those of output, center and spread."""
    x, phi, alpha, shift, gamma, weight, index, rows, samples = ctx.saved_tensors
    needs = ctx.needs_input_grad[: len(Inputs._fields)]
    if grad is None and grad_center is None and grad_spread is None:
        return (None,) * len(needs)
    phi, alpha = ctx.numbers[0] if phi is None else phi, ctx.numbers[1] if alpha is None else alpha
    beta = None
    if ctx.beta is not None:  # any tensor of β's shape and dtype
        alike = gamma is not None and (gamma.shape, gamma.dtype) == ctx.beta
        beta = gamma if alike else x.new_zeros((), dtype=ctx.beta[1]).expand(ctx.beta[0])
    of = Inputs(x, phi, alpha, shift, gamma, beta, weight)
    groups = problem.grouping_from_args(index, *ctx.groups)
    grads = Incoming(torch.zeros_like(x) if grad is None else grad, grad_center, grad_spread)
    if torch.compiler.is_compiling():
        if _is_fused(of, groups, ctx.rule):
            assert isinstance(groups, Axes)
            return rows_backend.normalize_backward(grads, of, groups, ctx.rule, Saved(rows, samples), needs)
    elif groups.joint:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "expected a first derivative (got create_graph=True): a normalization over several processes has no "
                "second derivative; call geonorm.unsync(model), which makes every process normalize alone"
            )
    elif torch.is_grad_enabled() or not torch._C._has_storage(grads.output):  # without storage: batched gradients
        return differentiable_gradients(grads, of, groups, ctx.rule, needs)
    return ops.normalize_backward(grads, of, groups, ctx.rule, Saved(rows, samples, ctx.plan, ctx.backend), needs)


def differentiable_gradients(
    grads: Incoming, of: Inputs, groups: Grouping, rule: Rule, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients by plain operations: repeats the forward and differentiates it."""
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases, because autograd itself handles paths from one input to another and the hooks of the inputs.
        of = Inputs(*[_alias(value, need, keep) for value, need in zip(of, needs, strict=True)])
        y, statistics, _ = _plain_forward(of, groups, rule)
        outputs = (y, statistics.center, statistics.spread)
        pairs = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None]
        wanted = [value for value, need in zip(of, needs, strict=True) if need and isinstance(value, Tensor)]
        found = iter(
            torch.autograd.grad(
                [out for out, _ in pairs], wanted, [grad for _, grad in pairs], create_graph=keep, allow_unused=True
            )
        )
    return tuple([next(found) if need else None for need in needs])


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _alias(value: Any, need: bool, keep: bool) -> Any:
    if not need or not isinstance(value, Tensor):
        return value
    return value.view_as(value) if keep and value.requires_grad else value.detach().requires_grad_()


def _plain_forward(of: Inputs, groups: Grouping, rule: Rule) -> tuple[Tensor, NormStatistics, Tensor | None]:
    """Output, statistics, and the factors of guarded samples, in operations that can be differentiated, batched and
    exported as they are."""
    of, factor = with_phi(of, groups, rule), None
    if rule.guard is not None:
        assert isinstance(groups, Axes)
        verdict = judge_samples(of.x, rule.guard, of.weight, groups)
        of, factor = pull_in(of, verdict.factor, verdict.center, groups.joint), verdict.factor
    find: norm.FindCenter = center_in_groups
    if rule.grad_floor:
        spread = norm.forward(Inputs(*[_detached(value) for value in of]), groups, rule, ops.center)[1].spread
        find = partial(center_in_groups, floor=rule.grad_floor * spread)
    y, found = norm.forward(of, groups, rule, find, center_in_groups)
    if factor is not None and of.weight is not None:  # samples that are not finite were ignored; they come out as NaN
        y = torch.where(factor.isnan().reshape(-1, *[1] * (y.dim() - 1)), math.nan, y)
    statistics = found.statistics()
    return y, statistics._replace(mean=statistics.mean.detach(), var=statistics.var.detach()), factor
