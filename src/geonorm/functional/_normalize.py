"""The normalization as a differentiable function, worked through in blocks of groups that fit the cache.

Groups are independent, so a large tensor can be normalized a few groups at a time: every intermediate result then
stays in the cache, and no second copy of the tensor is ever made. A compiler that traces, and a torch.func transform,
see the whole tensor at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..ops import Axes, Grouping, Running, can_look, count_guarded, follow_batch
from . import _native
from ._arguments import floating, per_group
from ._guard import judge_samples, pull
from ._implicit import pack, unpack, visible
from ._norm import Found, Incoming, Inputs, LearnedPhi, NormStatistics, Rule, backward, forward
from ._rows import by_rows, normalize_rows

_BLOCK = 1 << 20  # elements: fewer would not repay the solver's work per block
Values = TypeVar("Values", Inputs, Found, Incoming)


def normalize(
    of: Inputs,
    groups: Grouping,
    rule: Rule,
    running: Running | None = None,
    measured: bool = True,
    learned: LearnedPhi | None = None,
    counts: Tensor | None = None,
) -> tuple[Tensor, NormStatistics | None]:
    """The normalized x in x's dtype, and the statistics in the computing dtype (float32 for half precision).

    ``alpha``, ``shift``, ``gamma`` and ``beta`` broadcast to x; φ to the statistics; ``weight`` has x's shape. Entries
    of weight 0 come out as 0. The buffers of ``running`` follow the statistics, which come back if ``measured``.
    With ``learned``, ``phi`` is its offset. ``counts``: of guarded samples, which this batch is added to.
    """
    if groups.joint and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "expected plain autograd for a normalization over several processes (got a torch.func transform, under "
            "which they would exchange the wrong numbers); geonorm.unsync(model) normalizes in each process alone"
        )
    plan = None if groups.joint else _native.plan(of, groups, rule, learned)
    if plan is not None and learned is not None and learned.is_flat():
        return normalize(_with_phi(of, groups, learned), groups, rule, running, measured, None, counts)
    if plan is not None:
        found = _native.run(of, plan, running, measured, _again(groups, rule, learned), counts)
        if found is not None:
            return found
    if rule.guard is not None and not groups.joint and _may_read(of):
        inside = _guard_apart(of, groups, rule, running, measured, learned, counts)
        if inside is not None:
            return inside
    y, statistics, factor = _on_torch(of, groups, rule, learned)
    if running is not None:
        follow_batch(running, *statistics)
    if counts is not None and factor is not None:
        count_guarded(counts, factor)
    return y, statistics


def _with_phi(of: Inputs, groups: Grouping, learned: LearnedPhi) -> Inputs:
    """The inputs with φ itself in the place of its offset."""
    assert isinstance(groups, Axes)
    return of._replace(phi=per_group(learned.value(), of.x.shape, groups.dims, "phi"))


def _again(groups: Grouping, rule: Rule, learned: LearnedPhi | None) -> _native.Again:
    """The same normalization on torch. It holds no tensor: autograd keeps them."""
    _, dims, number, name = unpack(groups)
    between = None if learned is None else learned[1:]

    def again(of: Inputs, members: Tensor | None) -> tuple[Tensor, NormStatistics]:
        learned = LearnedPhi(of.phi, *between) if between is not None and isinstance(of.phi, Tensor) else None
        return _on_torch(of, pack(members, dims, number, name), rule, learned)[:2]

    return again


def _may_read(of: Inputs) -> bool:
    """Whether Python may look at the samples without waiting for another device."""
    return of.x.numel() > 0 and of.x.device.type == "cpu" and can_look(of.x, of.weight)


def _guard_apart(
    of: Inputs,
    groups: Grouping,
    rule: Rule,
    running: Running | None,
    measured: bool,
    learned: LearnedPhi | None,
    counts: Tensor | None,
) -> tuple[Tensor, NormStatistics | None] | None:
    """What takes a look at the samples: some are not finite, or the kernels take x only after the guard. Else None."""
    assert isinstance(groups, Axes)
    values = of.x.detach() if of.weight is None else torch.where(of.weight > 0, of.x.detach(), 0.0)
    low, high = torch.aminmax(values.flatten(1), dim=1)
    finite = low.isfinite() & high.isfinite()
    if not bool(finite.all()):
        return _among_finite(finite, of, groups, rule, running, measured, learned, counts)
    unguarded = rule._replace(guard=None)
    if _native.plan(of, groups, unguarded, learned) is None:
        return None
    assert rule.guard is not None
    verdict = judge_samples(of.x, rule.guard, of.weight, groups)
    inside = normalize(
        of._replace(x=pull(of.x, verdict.factor, verdict.center)), groups, unguarded, running, measured, learned
    )
    if counts is not None:
        count_guarded(counts, verdict.factor)
    return inside


def _among_finite(
    finite: Tensor,
    of: Inputs,
    groups: Axes,
    rule: Rule,
    running: Running | None,
    measured: bool,
    learned: LearnedPhi | None,
    counts: Tensor | None,
) -> tuple[Tensor, NormStatistics | None]:
    """Samples that are not finite come out as NaN; to all others it is as if they were not there."""
    rows = finite.nonzero().flatten()
    y, statistics = torch.full_like(of.x, math.nan), None
    if not len(rows):  # parameters keep their place in the graph: other processes wait for their gradients
        y = y + sum(0.0 * value.sum() for value in (of.x[:0], *of[1:6]) if isinstance(value, Tensor))
    if len(rows):
        kept = of._replace(x=of.x[rows], weight=None if of.weight is None else of.weight[rows])
        part, statistics = normalize(kept, groups, rule, running, measured, learned, counts)
        y = y.index_copy(0, rows, part)
    elif measured:
        nothing = groups.sum(torch.full_like(floating(of.x), math.nan))
        statistics = NormStatistics(nothing, nothing, nothing, nothing, torch.zeros_like(nothing, dtype=torch.float64))
    if counts is not None:
        counts[3] += len(finite) - len(rows)
    return y, statistics


def _on_torch(
    of: Inputs, groups: Grouping, rule: Rule, learned: LearnedPhi | None = None
) -> tuple[Tensor, NormStatistics, Tensor | None]:
    """Output, statistics, and the factors of guarded samples."""
    if learned is not None:
        of = _with_phi(of, groups, learned)
    if by_rows(of, groups, rule):
        assert isinstance(groups, Axes)
        return normalize_rows(of, groups, rule)
    factor = None
    if rule.guard is not None:
        of, factor = _pull_in(of, groups, rule.guard)
    arguments = visible(*of)
    y, *statistics = _Normalize.apply(*arguments, *unpack(groups), rule)  # type: ignore[no-untyped-call]
    if factor is not None and of.weight is not None:  # a sample that is not finite was left out: it stays NaN
        y = torch.where(factor.isnan().reshape(-1, *[1] * (y.dim() - 1)), math.nan, y)
    return y, NormStatistics(*statistics[:5]), factor


def _pull_in(of: Inputs, groups: Grouping, k: float) -> tuple[Inputs, Tensor]:
    """The inputs after the guard, and the factors. Samples that are not finite weigh nothing."""
    assert isinstance(groups, Axes)
    verdict = judge_samples(of.x, k, of.weight, groups)
    factor = verdict.factor
    x, weight = pull(of.x, factor, verdict.center), of.weight
    known = can_look(factor) and factor.device.type == "cpu" and not groups.joint
    if not known or bool(factor.isnan().any()):
        finite = ~factor.isnan().reshape(-1, *[1] * (x.dim() - 1))
        computing = verdict.center.dtype
        weight = finite.to(computing).expand(x.shape) if weight is None else torch.where(finite, weight, 0.0)
        x = torch.where(finite, x, 0.0)
    return of._replace(x=x, weight=weight), factor


class _Normalize(torch.autograd.Function):
    """The tensors of one normalization to its output and the fields of ``Found``.

    Without gradients Dynamo counts the parameters of ``forward`` to see whether it takes a context: no ``*arguments``.
    """

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
        members: Tensor | None,
        dims: tuple[int, ...],
        number: int,
        name: str,
        rule: Rule,
    ) -> tuple[Tensor, ...]:
        groups = pack(members, dims, number, name)
        inputs = Inputs(x, phi, alpha, shift, gamma, beta, weight)
        blocks = _blocks(inputs, groups)
        if not blocks:
            y, found = forward(inputs, groups, rule)
            y = y.clone() if y is x else y  # neither centered nor scaled
            return y, *[value.clone() for value in found]  # outputs of one function must not share memory
        y, parts = torch.empty_like(x), []
        for block in blocks:
            part, found = forward(block.of_all(inputs), groups, rule)
            block.of(y).copy_(part)
            parts.append(found)
        return y, *[torch.cat(column, blocks[0].dim) for column in zip(*parts, strict=True)]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, phi, alpha, shift, gamma, beta, weight, members, ctx.dims, ctx.number, ctx.name, ctx.rule = inputs
        found = Found(*output[1:])
        ctx.phi, ctx.alpha = (None if isinstance(value, Tensor) else value for value in (phi, alpha))
        ctx.mark_non_differentiable(found.mean, found.var, found.mass, found.lower, found.upper, found.low, found.high)
        tensors = (value if isinstance(value, Tensor) else None for value in (phi, alpha))
        ctx.beta = None if beta is None else (beta.shape, beta.dtype)
        ctx.save_for_backward(x, *tensors, shift, gamma, weight, members, *found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, phi, alpha, shift, gamma, weight, members, *saved = ctx.saved_tensors
        found, rule = Found(*saved), ctx.rule
        if ctx.name and torch.is_grad_enabled():
            raise RuntimeError(
                "expected a first derivative (got create_graph=True): a normalization over several processes has no "
                "second one; geonorm.unsync(model) normalizes in each process alone, which has"
            )
        if ctx.name and weight is None:  # counted by the forward
            members = found.mass.reshape(-1)[:1]
        groups = pack(members, ctx.dims, ctx.number, ctx.name)
        # β's gradient needs its shape only: not saved, it may be changed in place meanwhile.
        beta = None if ctx.beta is None else x.new_empty((), dtype=ctx.beta[1]).expand(ctx.beta[0])
        inputs = Inputs(
            x, ctx.phi if phi is None else phi, ctx.alpha if alpha is None else alpha, shift, gamma, beta, weight
        )
        incoming = Incoming(grads[0], grads[1], grads[2], grads[6])
        needs = ctx.needs_input_grad[: len(inputs)]
        nothing = [None] * 5  # groups and rule
        blocks = [] if torch.is_grad_enabled() else _blocks(inputs, groups)
        if not blocks:
            return *backward(incoming, inputs, found, groups, rule, needs), *nothing
        parts = [
            backward(
                block.of_all(incoming),
                block.of_all(inputs),
                block.of_all(found),
                groups,
                rule,
                needs,
            )
            for block in blocks
        ]
        return *[
            blocks[0].join(column, value) for column, value in zip(zip(*parts, strict=True), inputs, strict=True)
        ], *nothing


class _Block(NamedTuple):
    """A range of whole groups along one kept dimension of x."""

    dim: int
    start: int
    length: int
    rank: int  # of x

    def _own(self, value: Tensor) -> int | None:
        """The dimension of a value that broadcasts to x which this block cuts; None if it is shared by all blocks."""
        dim = self.dim - (self.rank - value.dim())
        return dim if dim >= 0 and value.shape[dim] != 1 else None

    def of(self, value: Tensor) -> Tensor:
        """The part of a tensor that belongs to the block."""
        dim = self._own(value)
        return value if dim is None else value.narrow(dim, self.start, self.length)

    def of_all(self, values: Values) -> Values:
        """The same of each tensor in a named tuple; other values as they are."""
        parts: list[Any] = [self.of(value) if isinstance(value, Tensor) else value for value in values]
        return type(values)(*parts)

    def join(self, grads: tuple[Tensor | None, ...], value: Any) -> Tensor | None:
        """Gradients of the parts as the gradient of the whole: put together, or added where the value is shared."""
        parts = [grad for grad in grads if grad is not None]
        if not parts:
            return None
        dim = self._own(value)
        return torch.stack(parts).sum(0) if dim is None else torch.cat(parts, dim)


def _blocks(inputs: Inputs, groups: Grouping) -> list[_Block]:
    """How to cut a large tensor; nothing if it is small, or if the data must not be looked at."""
    x = inputs.x
    if not isinstance(groups, Axes) or groups.joint or x.numel() <= 2 * _BLOCK:
        return []  # of joint groups all processes must take the same steps, whatever the size here
    if not can_look(*[value for value in inputs if isinstance(value, Tensor)]):
        return []
    kept = [d for d in range(x.dim()) if d not in groups.dims and x.shape[d] > 1]
    if not kept:
        return []
    dim = kept[0]
    step = max(1, _BLOCK * x.shape[dim] // x.numel())
    return [_Block(dim, start, min(step, x.shape[dim] - start), x.dim()) for start in range(0, x.shape[dim], step)]
