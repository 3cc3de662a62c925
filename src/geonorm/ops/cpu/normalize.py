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
from ..grouping import Axes, Grouping, Segments
from ..learned import LearnedPhi
from ..problem import Inputs, Result, Rule, Saved
from ..running import Running
from ..torch.center import Center
from ..torch.guard import GuardedMoments, Verdict
from . import library
from .plan import Plan, plan

HALF = (torch.bfloat16, torch.float16)


def why_not() -> str | None:
    """Why the kernels are not available here; None if they are."""
    found = library.load()
    return found if isinstance(found, str) else None


def wrote(saved: Saved) -> bool:
    """Whether the kernels wrote the state: ``plan`` says so at once, the rows after an operator."""
    if saved.plan is not None:
        return isinstance(saved.plan, Plan)
    rows = saved.groups
    return rows.is_cpu and rows.numel() > 0 and float(rows[0, problem.BY]) == problem.BY_CPU


def normalize(
    of: Inputs, groups: Grouping, rule: Rule, running: Running | None = None, counts: Tensor | None = None
) -> Result | None:
    """Output, and the state for backward. Updates buffers and ``counts`` of guarded samples where the kernels can.

    The inputs need not be dense: the kernels read from a copy what they cannot read in place.
    """
    if isinstance(groups, Segments):
        of, rule = _with_phi(of, rule)
    found = plan(of, groups, rule)
    if found is None:
        return None
    dtype, strides = found.dtype, found.strides
    samples = of.x.new_empty(problem.verdict_size(of.x), dtype=dtype) if found.guarded else None
    buffers: tuple[Tensor | None, ...] | None = library.NO_BUFFERS
    factor, normal_scale = 0.0, 1.0
    if running is not None:
        buffers = buffers_of(running, found)
        factor = float(running.factor)
        if running.seen is not None:
            normal_scale = running.seen.normal_scale
    x = dense(of.x, of.x, strides)
    y = x.new_empty_strided(x.shape, strides)
    saved = x.new_empty((found.arrangement.groups, library.STATE_SIZE), dtype=torch.float64)
    if not library.forward(
        found.encoded_spec,
        x,
        y,
        found.offsets,
        parameters_of(of, found),
        saved,
        library.NO_BUFFERS if buffers is None else buffers,
        factor,
        normal_scale,
        samples,
        None if buffers is None else counts,
    ):
        return None
    updated = buffers is not None
    if running is not None and buffers is not None:
        if buffers[0] is not running.mean:
            _round_buffers(running, buffers)
        tell_autograd(running)
    note = found if found.offsets is None else None
    return Result(laid_out(y, of.x), Saved(saved, samples, note), updated)


def statistics(of: Inputs, groups: Grouping, rule: Rule) -> Tensor | None:
    """The statistics alone, in the layout of ``Saved.groups``."""
    found = plan(of, groups, rule)
    if found is None:
        return None
    x = dense(of.x, of.x, found.strides)
    saved = x.new_empty((found.arrangement.groups, library.STATE_SIZE), dtype=torch.float64)
    done = library.forward(found.encoded_spec, x, None, found.offsets, parameters_of(of, found), saved)
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
    learned = None
    if isinstance(groups, Segments):
        if rule.learned is not None and isinstance(of.phi, Tensor):
            learned = LearnedPhi(of.phi.detach(), *rule.learned)
        of, rule = _with_phi(of, rule)
    found = saved.plan or plan(of, groups, rule)
    if found is None:
        return None
    a, dtype, x = found.arrangement, found.dtype, dense(of.x, of.x, found.strides)
    g = dense(grad, x, found.strides)
    dx = x.new_empty_strided(x.shape, found.strides)
    parts: list[Tensor | None] = [None] * 5  # of φ, α, shift, γ, β
    for i in range(5):
        value = of[1 + i]
        if needs[1 + i] and isinstance(value, Tensor):
            shape, count = (a.phi_shape, a.phi_count) if i == 0 else (a.parameter_shape, a.parameter_count)
            parts[i] = x.new_empty(value.shape if value.numel() == count else shape, dtype=dtype)
    parameters = parameters_of(of, found, backward=True)
    library.backward(found.encoded_spec, x, g, dx, found.offsets, parameters, saved.groups, parts, saved.samples)
    by_phi = parts[0]
    if by_phi is not None and isinstance(of.phi, Tensor) and isinstance(groups, Axes) and by_phi.dim() != of.phi.dim():
        full = problem.per_group_shape(of.phi.shape, x.shape, groups.dims, "phi")
        parts[0] = by_phi.sum_to_size(full).reshape(of.phi.shape)
    for i, part in enumerate(parts):
        if part is None:
            continue
        value = of[1 + i]
        if isinstance(value, Tensor) and (part.dtype is not value.dtype or part.shape != value.shape):
            parts[i] = part.sum_to_size(value.shape).to(value.dtype)  # the parameter was expanded
    if learned is not None and parts[0] is not None:
        parts[0] = learned.gradient(parts[0])
    return laid_out(dx, of.x), *parts, None


def _with_phi(of: Inputs, rule: Rule) -> tuple[Inputs, Rule]:
    """φ in place of its offset: of segments the kernels do not compute it."""
    if rule.learned is None or not isinstance(of.phi, Tensor):
        return of, rule
    return of._replace(phi=LearnedPhi(of.phi.detach(), *rule.learned).value()), rule._replace(learned=None)


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


def parameters_of(of: Inputs, found: Plan, backward: bool = False) -> list[Tensor | None]:
    """φ, α, shift, γ, β as the kernels read them. β is not read in ``backward``."""
    a, dtype = found.arrangement, found.dtype
    given: list[Tensor | None] = [None] * 5
    for i in range(4 if backward else 5):
        value = of[1 + i]
        if isinstance(value, Tensor):
            count = a.phi_count if i == 0 else a.parameter_count
            if value.dtype is not dtype or value.numel() != count or not value.is_contiguous() or value.is_neg():
                value = value.detach().resolve_neg().to(dtype)
                if value.numel() != count:
                    value = value.expand(a.phi_shape if i == 0 else a.parameter_shape)
                value = value.contiguous()
            given[i] = value
    return given


def buffers_of(running: Running, found: Plan) -> tuple[Tensor | None, ...] | None:
    """The running statistics, their copies and the counter, as the kernels update them in place.

    Those in half precision are given as float32, to be rounded afterwards. None if the kernels cannot update them.
    """
    a, dtype, seen, batches = found.arrangement, found.dtype, running.seen, running.batches
    if running.over or a.segments != 1 or not (batches is None or (batches.dtype is torch.int64 and batches.is_cpu)):
        return None
    buffers: list[Tensor | None] = [*running[:4], *(library.NO_COPIES if seen is None else seen[:4])]
    half = running.mean.dtype if dtype is torch.float32 and running.mean.dtype in HALF else None
    for i, buffer in enumerate(buffers):
        if buffer is None:
            continue
        if buffer.numel() != a.groups or not buffer.is_contiguous() or not buffer.is_cpu:
            return None
        if buffer.dtype is half:
            buffers[i] = buffer.to(dtype)
        elif buffer.dtype is not dtype or half is not None:
            return None
    buffers.append(batches)
    return tuple(buffers)


def _round_buffers(running: Running, buffers: tuple[Tensor | None, ...]) -> None:
    """Bring results that the kernels computed in float32 into buffers in half precision."""
    originals = [*running[:4], *(library.NO_COPIES if running.seen is None else running.seen[:4])]
    for original, buffer in zip(originals, buffers, strict=False):
        if original is not None and buffer is not None and original is not buffer:
            original.copy_(buffer)


def tell_autograd(running: Running) -> None:
    """Tell autograd that the buffers have changed."""
    changed = [buffer for buffer in (running.mean, running.var, running.center, running.scale) if buffer is not None]
    torch.autograd.graph.increment_version(changed)
