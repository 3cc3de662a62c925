"""Normalizing a guarded batch in steps, where no backend does it at once: judge the samples, pull them in, normalize.

Samples that are not finite come out as NaN. On the CPU they are removed before anything is measured, so that all others
come out bit for bit as if they were not there; elsewhere they get weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from . import problem
from .checks import can_read_values
from .grouping import Axes, Grouping
from .precision import computing_dtype, wide_dtype
from .problem import Incoming, Inputs, Result, Rule, Saved
from .running import Running
from .torch import normalize as on_torch
from .torch import rows as rows_backend
from .torch.guard import MomentsOfGuarded, judge_samples, pulled_inputs

Normalize = Callable[[Inputs, Grouping, Rule, Running | None, Tensor | None], Result]
Backward = Callable[[Incoming, Inputs, Grouping, Rule, Saved, tuple[bool, ...]], tuple[Tensor | None, ...]]


def normalize(
    of: Inputs,
    groups: Grouping,
    rule: Rule,
    running: Running | None,
    counts: Tensor | None,
    then: Normalize,
    moments_of: MomentsOfGuarded,
) -> Result:
    """``then`` normalizes the batch after the guard; ``moments_of`` judges samples by their moments."""
    assert isinstance(groups, Axes)
    assert rule.guard is not None
    if can_read_values(of.x, of.weight) and of.x.numel() and not groups.joint:
        values = of.x if of.weight is None else torch.where(of.weight > 0, of.x, 0.0)
        low, high = torch.aminmax(values.flatten(1), dim=1)
        finite = low.isfinite() & high.isfinite()
        if not bool(finite.all()):
            return _normalize_finite(finite.nonzero().flatten(), of, groups, rule, running, counts, then)
    if rows_backend.supports(of, groups, rule):
        return rows_backend.normalize(of, groups, rule, moments_of)
    verdict = judge_samples(of.x, rule.guard, of.weight, groups)
    samples = verdict.to_numbers()
    inside = pulled_inputs(of, verdict.factor, verdict.center, groups.joint)
    result = then(inside, groups, rule._replace(guard=None), None, None)
    broken = verdict.factor.isnan().reshape(-1, *[1] * (of.x.dim() - 1))
    y = result.output if inside.weight is None else torch.where(broken, math.nan, result.output)
    return Result(y, Saved(result.saved.groups, samples, backend=result.saved.backend))


def _normalize_finite(
    rows: Tensor,
    of: Inputs,
    groups: Axes,
    rule: Rule,
    running: Running | None,
    counts: Tensor | None,
    then: Normalize,
) -> Result:
    """Normalize only the samples in ``rows``; all others come out as NaN."""
    y = torch.full_like(of.x, math.nan)
    dtype = computing_dtype(of.x.dtype)
    samples = torch.full((problem.verdict_size(of.x),), math.nan, dtype=dtype, device=of.x.device)
    if not len(rows):
        shape = (problem.number_of_groups(of.x.shape, groups), len(problem.COLUMNS))
        nothing = torch.full(shape, math.nan, dtype=wide_dtype(of.x.device), device=of.x.device)
        nothing[:, problem.MASS] = 0.0
        return Result(y, Saved(nothing, samples))
    kept = of._replace(x=of.x[rows], weight=None if of.weight is None else of.weight[rows])
    result = then(kept, groups, rule, running, counts)
    if result.running_updated and counts is not None:
        counts[3] += len(of.x) - len(rows)
    y[rows] = result.output
    found, total = result.saved.samples, len(of.x)
    assert found is not None
    samples[rows], samples[total + rows] = found[: len(rows)], found[len(rows) : 2 * len(rows)]
    samples[2 * total :] = found[2 * len(rows) :]
    return Result(y, Saved(result.saved.groups, samples, backend=result.saved.backend), result.running_updated)


def finite_rows(x: Tensor, samples: Tensor, groups: Grouping) -> Tensor | None:
    """The samples that forward kept; None if it kept all, or if the values cannot be read."""
    if groups.joint or not can_read_values(samples):
        return None
    broken = problem.factors_of(samples, x).isnan()
    return (~broken).nonzero().flatten() if bool(broken.any()) else None


def backward_of_finite(
    rows: Tensor,
    grads: Incoming,
    of: Inputs,
    groups: Grouping,
    rule: Rule,
    saved: Saved,
    needs: tuple[bool, ...],
    then: Backward,
) -> tuple[Tensor | None, ...]:
    """Gradients of a batch in which only ``rows`` counted: the others get 0."""
    if not len(rows):
        return tuple(
            [torch.zeros_like(v) if n and isinstance(v, Tensor) else None for v, n in zip(of, needs, strict=True)]
        )
    assert saved.samples is not None
    total, all_of = len(of.x), saved.samples
    samples = torch.cat([all_of[rows], all_of[total + rows], all_of[2 * total :]])
    kept = of._replace(x=of.x[rows], weight=None if of.weight is None else of.weight[rows])
    incoming, state = grads._replace(output=grads.output[rows]), Saved(saved.groups, samples, backend=saved.backend)
    dx, *others, d_weight = then(incoming, kept, groups, rule, state, needs)

    def put_back(part: Tensor | None, like: Tensor | None) -> Tensor | None:
        return None if part is None or like is None else torch.zeros_like(like).index_copy_(0, rows, part)

    return put_back(dx, of.x), *others, put_back(d_weight, of.weight)


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...], then: Backward
) -> tuple[Tensor | None, ...]:
    """Gradients of the guarded batch, times the factor of each sample."""
    assert saved.samples is not None
    if rows_backend.supports(of, groups, rule):
        return on_torch.normalize_backward(grads, of, groups, rule, saved, needs)
    factor = problem.factors_of(saved.samples, of.x)
    inside = pulled_inputs(of, factor, problem.joint_center_of(saved.samples, of.x), groups.joint)
    state = Saved(saved.groups, backend=saved.backend)
    dx, *others, d_weight = then(grads, inside, groups, rule._replace(guard=None), state, (*needs[:6], needs[6]))
    assert dx is not None
    f = factor.reshape(-1, *[1] * (of.x.dim() - 1))
    dx = torch.where(f.isnan(), 0.0, dx * f.to(dx.dtype))
    return dx, *others, None if of.weight is None or d_weight is None else torch.where(f.isnan(), 0.0, d_weight)
