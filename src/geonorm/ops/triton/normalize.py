"""Normalization by the Triton kernels: the functions that ``ops/backend.py`` names.

A function here returns None to refuse a case without a kernel (``plan.py``); torch takes it. Nothing waits for the
device, no launch depends on the data, and nothing is added by atomics: results repeat bit for bit, and a step can be
captured in a CUDA graph.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes, Grouping, Segments
from ..problem import Inputs, Result, Rule, Saved
from ..running import Running
from ..torch.center import Center
from ..torch.guard import GuardedMoments, Verdict
from . import gradients, guard, segments
from .measure import is_small, measure_large, measure_small, statistics, write_output
from .parameters import parameters_of
from .plan import Plan, plan
from .running import can_update, update


def interprets() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU and slowly: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def why_not() -> str | None:
    """Why the kernels are not available here; None if they are."""
    if find_spec("triton") is None:
        return "triton is not installed (torch for CUDA brings it; pip install triton)"
    if not interprets() and not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


def wrote(saved: Saved) -> bool:
    """Whether backward continues from these rows.

    Through an operator a state loses its plan, and reading the rows would wait for the device. There they count as
    written by the kernels if these were requested in forward: what they refuse in backward they refused then too.
    """
    if saved.plan is not None:
        return isinstance(saved.plan, Plan)
    rows = saved.groups
    if rows.is_cpu:
        return rows.numel() > 0 and float(rows[0, problem.BY]) == problem.BY_TRITON
    return saved.backend == "triton"


def normalize(
    of: Inputs, groups: Grouping, rule: Rule, running: Running | None = None, counts: Tensor | None = None
) -> Result | None:
    """Output, and the state for backward. Updates running statistics and counts where a kernel can."""
    groups = as_axes(groups)
    found = plan(of, groups, rule)
    if found is None:
        return None
    with launching_on(of.x):
        return _normalize(of, groups, rule, found, running, counts)


def _normalize(
    of: Inputs, groups: Grouping, rule: Rule, found: Plan, running: Running | None, counts: Tensor | None
) -> Result:
    x, p = as_read(of.x, of.x, found), parameters_of(of, groups, rule, found.layout)
    updates = running is None or can_update(running, of.x, found.layout.G)
    samples = None
    if rule.guard is not None:
        rows, samples = guard.measure(x, p, rule, found, counts if updates else None)
        factors = problem.factors_of(samples, of.x)
        y = write_output(x, rows, p, found, factors, problem.joint_center_of(samples, of.x))
    elif isinstance(groups, Segments):
        y = torch.empty_like(x)
        rows = segments.measure(x, y, p, rule, found, groups)
    elif is_small(found.layout):
        y = torch.empty_strided(x.shape, found.strides, dtype=x.dtype, device=x.device)
        rows = measure_small(x, y, p, rule, found)
    else:
        rows = measure_large(x, p, rule, found)
        y = write_output(x, rows, p, found)
    if running is not None and updates:
        update(running, rows)
    return Result(laid_out(y, of.x), Saved(rows, samples, found, "triton"), updates)


def normalize_backward(
    grad: Tensor, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...] | None:
    """Gradients of the inputs, in their order. ``of.beta`` may be any tensor of β's shape and dtype."""
    groups = as_axes(groups)
    found = plan(of, groups, rule)
    if found is None:
        return None
    with launching_on(of.x):
        p = parameters_of(of, groups, rule, found.layout, backward=True)
        x, g = as_read(of.x, of.x, found), as_read(grad, of.x, found)
        if isinstance(groups, Segments):
            dx, parts = segments.gradients(x, g, of, p, groups, rule, found, saved, needs)
        else:
            dx, parts = gradients.compute(x, g, of, p, groups, rule, found, saved, needs)
        return laid_out(dx, of.x), *parts, None


def center(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None
) -> Center | None:
    """See ``ops.torch.center``."""
    rows = _measured(Inputs(x, phi, 1.0, None, None, None, weight), groups, Rule(sweeps=sweeps, scaled=False))
    if rows is None:
        return None
    columns = (problem.CENTER, problem.BOUND, problem.SWEEPS, problem.LOWER, problem.UPPER)
    dtypes = (x.dtype, torch.float64, torch.int64, x.dtype, x.dtype)
    shape = problem.statistics_shape(x.shape, groups)
    return Center(*[rows[:, i].to(dtype, copy=True).reshape(shape) for i, dtype in zip(columns, dtypes, strict=True)])


def spread(z: Tensor, weight: Tensor | None, groups: Grouping, rule: Rule) -> Tensor | None:
    """The spread of the deviations z of every group."""
    rows = _measured(Inputs(z, 2.0, 1.0, None, None, None, weight), groups, rule)
    if rows is None:
        return None
    return rows[:, problem.SPREAD].to(z.dtype, copy=True).reshape(problem.statistics_shape(z.shape, groups))


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments | None:
    """See ``ops.torch.guard.guarded_moments``."""
    if mean.dtype != torch.float32 or not mean.numel():
        return None
    with launching_on(mean):
        judged = guard.judge(mean.contiguous(), deviation.contiguous(), k, 1, None)
    verdict = Verdict.from_numbers(judged.verdict, *mean.shape)
    total, var = judged.found[guard.MEAN_ROW].to(mean.dtype), judged.found[guard.VAR_ROW].to(mean.dtype)
    return GuardedMoments(verdict, total, var, judged.mass[0])


def _measured(of: Inputs, groups: Grouping, rule: Rule) -> Tensor | None:
    groups = as_axes(groups)
    found = plan(of, groups, rule)
    if found is None:
        return None
    with launching_on(of.x):
        x, p = as_read(of.x, of.x, found), parameters_of(of, groups, rule, found.layout)
        if isinstance(groups, Segments):
            return segments.measure(x, None, p, rule, found, groups)
        return statistics(x, p, rule, found)


def as_axes(groups: Grouping) -> Grouping:
    """A single segment as a batch, whose groups several programs share."""
    return Axes((0,)) if isinstance(groups, Segments) and groups.number == 1 else groups


def launching_on(x: Tensor) -> AbstractContextManager[None]:
    """Triton launches on the current device, which may not be that of x."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def as_read(value: Tensor, like: Tensor, found: Plan) -> Tensor:
    """The value in the dtype of x and with the strides that the kernels read."""
    if value.dtype == like.dtype and value.stride() == found.strides and not value.is_neg():
        return value.detach()
    copy = torch.empty_strided(value.shape, found.strides, dtype=like.dtype, device=like.device)
    return copy.copy_(value.detach())


def laid_out(value: Tensor, like: Tensor) -> Tensor:
    """A result in the memory order of the input, as torch's own functions return it."""
    if like.stride() == value.stride():
        return value
    wanted = torch.empty_like(like)
    return value if wanted.stride() == value.stride() else wanted.copy_(value)
