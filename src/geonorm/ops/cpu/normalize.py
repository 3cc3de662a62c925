"""Normalization by the compiled kernels.

A function here returns None to refuse a case without a kernel; another backend takes it. Refused are element weights,
spreads other than rms, mean_abs, max_abs and robust, fixed numbers of sweeps, φ outside of [1.01, 4] other than 1 and
∞, and unsorted segments. Some cases are refused only once the kernels see the data: magnitudes above 1e15 or below
1e-18 (1e120 and 1e-123 in float64), a learned φ at an end of its range, and guarded samples that are not finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes, Grouping
from ..problem import Inputs, Result, Rule, Saved
from ..running import Running, refresh_copies
from ..torch.center import Center
from ..torch.guard import GuardedMoments, Verdict
from . import library
from .arrange import Arrangement
from .plan import Plan, plan

_NOTHING = (None,) * 5


def why_not() -> str | None:
    """Why the kernels are not available here; None if they are."""
    found = library.load()
    return found if isinstance(found, str) else None


def wrote(saved: Saved) -> bool:
    """Whether the kernels wrote the state: ``plan`` says so at once, the rows after an operator."""
    if saved.plan is not None:
        return True
    rows = saved.groups
    return rows.is_cpu and rows.numel() > 0 and float(rows[0, problem.BY]) == problem.BY_CPU


def normalize(
    of: Inputs, groups: Grouping, rule: Rule, running: Running | None = None, counts: Tensor | None = None
) -> Result | None:
    """Output, and the state for backward. Updates buffers and ``counts`` of guarded samples where the kernels can.

    The inputs need not be dense: the kernels read from a copy what they cannot read in place.
    """
    found = plan(of, groups, rule)
    if found is None:
        return None
    a, dtype = found.arrangement, found.dtype
    samples = None
    if found.guarded:
        samples = of.x.new_empty(problem.verdict_size(of.x), dtype=dtype)
    buffers: tuple[Tensor | None, ...] = _NOTHING
    factor, follows = 0.0, running is None or _can_follow(running, a, dtype)
    if running is not None and follows:
        buffers, factor = (*running[:4], running.batches), float(running.factor)
    x = dense(of.x, of.x, found.strides)
    y = x.new_empty_strided(x.shape, found.strides)
    saved = x.new_empty((a.groups, library.STATE_SIZE), dtype=torch.float64)
    parameters, counts = parameters_of(of, found), counts if follows else None
    if not library.forward(
        found.encoded_spec, x, y, found.offsets, parameters, saved, buffers, factor, samples, counts
    ):
        return None
    if running is not None and follows:
        torch.autograd.graph.increment_version([buffer for buffer in buffers if buffer is not None])
        refresh_copies(running)
    note = found if found.offsets is None else None
    return Result(laid_out(y, of.x), Saved(saved, samples, note), follows)


def statistics(of: Inputs, groups: Grouping, rule: Rule) -> Tensor | None:
    """The statistics alone, in the layout of ``Saved.groups``."""
    found = plan(of, groups, rule)
    if found is None:
        return None
    x = dense(of.x, of.x, found.strides)
    saved = x.new_empty((found.arrangement.groups, library.STATE_SIZE), dtype=torch.float64)
    done = library.forward(found.encoded_spec, x, None, found.offsets, parameters_of(of, found), saved, _NOTHING, 0.0)
    return saved if done else None


def center(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None
) -> Center | None:
    """See ``ops.torch.center``."""
    of = Inputs(x, phi, 1.0, None, None, None, weight)
    saved = statistics(of, groups, Rule(sweeps=sweeps, scaled=False))
    if saved is None:
        return None
    shape = problem.statistics_shape(x.shape, groups)
    columns = (problem.CENTER, problem.BOUND, problem.SWEEPS, problem.LOWER, problem.UPPER)
    dtypes = (x.dtype, torch.float64, torch.int64, x.dtype, x.dtype)
    found = [saved[:, i].to(dtype, copy=True).reshape(shape) for i, dtype in zip(columns, dtypes, strict=True)]
    return Center(*found)


def spread(z: Tensor, weight: Tensor | None, groups: Grouping, rule: Rule) -> Tensor | None:
    """The spread of the deviations z of every group."""
    saved = statistics(Inputs(z, 2.0, 1.0, None, None, None, weight), groups, rule)
    if saved is None:
        return None
    return saved[:, problem.SPREAD].to(z.dtype, copy=True).reshape(problem.statistics_shape(z.shape, groups))


def normalize_backward(
    grad: Tensor, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...] | None:
    """Gradients of the inputs, in their order. ``of.beta`` may be any tensor of β's shape and dtype."""
    found = saved.plan or plan(of, groups, rule)
    if found is None:
        return None
    a, x = found.arrangement, dense(of.x, of.x, found.strides)
    g = dense(grad, x, found.strides)
    dx = x.new_empty_strided(x.shape, found.strides)
    parameters = parameters_of(of, found, backward=True)
    parts: list[Tensor | None] = [None] * 5  # of φ, α, shift, γ, β
    for i in range(5):
        value = of[1 + i]
        if needs[1 + i] and isinstance(value, Tensor):
            shape, count = (a.phi_shape, a.phi_count) if i == 0 else (a.parameter_shape, a.parameter_count)
            parts[i] = x.new_empty(value.shape if value.numel() == count else shape, dtype=found.dtype)
    library.backward(found.encoded_spec, x, g, dx, found.offsets, parameters, saved.groups, parts, saved.samples)
    by_phi = parts[0]
    if by_phi is not None and isinstance(of.phi, Tensor) and isinstance(groups, Axes) and by_phi.dim() != of.phi.dim():
        full = problem.per_group_shape(of.phi.shape, x.shape, groups.dims, "phi")
        parts[0] = by_phi.sum_to_size(full).reshape(of.phi.shape)
    for i, part in enumerate(parts):
        value = of[1 + i]
        if part is not None and isinstance(value, Tensor) and (part.shape != value.shape or part.dtype != value.dtype):
            parts[i] = part.sum_to_size(value.shape).to(value.dtype)  # the parameter was expanded
    return laid_out(dx, of.x), *parts, None


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments | None:
    """See ``ops.torch.guard.guarded_moments``."""
    found = library.guarded_moments(mean, deviation, k)
    if found is None:
        return None
    numbers, total, var = found
    samples = mean.new_full((), float(len(mean)), dtype=torch.float64)
    return GuardedMoments(Verdict.from_numbers(numbers, *mean.shape), total, var, samples)


def dense(value: Tensor, like: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The value in the dtype of x and with the strides that the kernels read."""
    if value.dtype == like.dtype and value.stride() == strides and not value.is_neg():
        return value
    return like.new_empty_strided(value.shape, strides).copy_(value.detach())


def laid_out(value: Tensor, like: Tensor) -> Tensor:
    """A result computed from a copy, in the memory order of the original, as torch's own functions return it."""
    if like.stride() == value.stride():
        return value
    wanted = torch.empty_like(like)
    return value if wanted.stride() == value.stride() else wanted.copy_(value)


def parameters_of(of: Inputs, found: Plan, backward: bool = False) -> tuple[Tensor | None, ...]:
    """φ, α, shift, γ, β as the kernels read them. β is not read in ``backward``."""
    a, dtype = found.arrangement, found.dtype
    given: list[Tensor | None] = [None] * 5
    for i in range(4 if backward else 5):
        value = of[1 + i]
        if isinstance(value, Tensor):
            shape, count = (a.phi_shape, a.phi_count) if i == 0 else (a.parameter_shape, a.parameter_count)
            given[i] = _expanded(value, shape, count, dtype)
    return tuple(given)


def _expanded(value: Tensor, shape: tuple[int, ...], count: int, dtype: torch.dtype) -> Tensor:
    """A parameter in the computing dtype, contiguous, of the common shape with ``count`` entries."""
    if value.dtype == dtype and value.numel() == count and value.is_contiguous() and not value.is_neg():
        return value
    value = value.detach().resolve_neg().to(dtype)
    return (value if value.numel() == count else value.expand(shape)).contiguous()


def _can_follow(running: Running, a: Arrangement, dtype: torch.dtype) -> bool:
    if running.over or a.segments != 1 or a.groups != running.mean.numel():
        return False
    for buffer in running[:4]:
        if isinstance(buffer, Tensor) and not (
            buffer.dtype == dtype and buffer.numel() == a.groups and buffer.is_contiguous() and buffer.is_cpu
        ):
            return False
    return running.batches is None or (running.batches.dtype == torch.int64 and running.batches.is_cpu)
