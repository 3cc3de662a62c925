"""The entry to the backends: a direct call where nothing traces or intercepts it, a registered operator elsewhere.

Compilers, fake tensors, dispatch modes and tensor subclasses need the operators. An operator call takes noticeable time
on a small tensor, so one check, ``may_call_directly``, allows the shortcut.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from . import choose, problem
from .checks import check_exponent, exports_to_onnx
from .grouping import Grouping, Segments
from .problem import Incoming, Inputs, Result, Rule, Saved
from .running import Running, update_running_stats_
from .torch import center as on_torch
from .torch.center import Center
from .torch.guard import count_guarded

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_transforms_active = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state


def may_call_directly(*values: Any) -> bool:
    """Whether all tensors among the values are plain, and no tracer, mode or transform intercepts operations."""
    if torch.compiler.is_compiling() or _transforms_active() or _dispatch_modes():
        return False
    if _tracing_state() is not None or forward_ad._current_level >= 0:
        return False
    for value in values:
        kind = type(value)
        if value is None or kind is float:
            continue
        if kind is not Tensor and kind is not Parameter:
            return False
        if value.is_meta or value.layout is not torch.strided or _is_wrapped(value):
            return False
    return True


def needs_plain_operations(sweeps: int | None) -> bool:
    """Whether every step must be a plain torch operation, which torch can differentiate, batch or export.

    True under torch.func and forward-mode derivatives, for tracers that do not know geonorm's operators, and in a
    compiled graph with a fixed number of sweeps.
    """
    if torch.compiler.is_compiling():
        return sweeps is not None or exports_to_onnx() or _transforms_active()
    return _transforms_active() or _tracing_state() is not None or forward_ad._current_level >= 0


def normalize(
    of: Inputs, groups: Grouping, rule: Rule, running: Running | None = None, counts: Tensor | None = None
) -> Result:
    """Output, and the state for backward, without the operator. Updates the running statistics."""
    result = choose.normalize(of, groups, rule, running, counts)
    if not result.running_updated:
        update(result.saved, of.x, groups, running, counts)
    return result


def update(saved: Saved, x: Tensor, groups: Grouping, running: Running | None, counts: Tensor | None) -> None:
    """Update running statistics and counts of guarded samples from the results of forward."""
    if running is not None:
        update_running_stats_(running, *problem.statistics_of(saved.groups, x, groups))
    if counts is not None and saved.samples is not None:
        count_guarded(counts, problem.factors_of(saved.samples, x))


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order; None where they are not needed. ``of.beta``: any tensor like β."""
    if may_call_directly(*grads, of.x):  # forward has checked the others
        return choose.normalize_backward(grads, of, groups, rule, saved, needs)
    found = torch.ops.geonorm.normalize_backward(
        *grads, saved.groups, saved.samples, list(needs), *problem.to_arguments(of, groups, rule, saved.backend)
    )
    return tuple([part if need else None for part, need in zip(found, needs, strict=True)])


def spread(z: Tensor, weight: Tensor | None, groups: Grouping, rule: Rule) -> Tensor | None:
    """The spread of the deviations z of every group, without a gradient; None if no kernel supports it."""
    index = groups.index if isinstance(groups, Segments) else None
    return choose.spread(z, weight, groups, rule) if may_call_directly(z, weight, index) else None


def center(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
) -> Center:
    """The center of every group, without a gradient; see ``ops.torch.center``.

    With a fixed number of sweeps a compiler sees plain operations that it can fuse, otherwise one operator.
    """
    if torch.compiler.is_compiling() and (sweeps is not None or exports_to_onnx()):
        return on_torch.center(x, phi, weight, groups, sweeps, phi_strictly_inside)
    index = groups.index if isinstance(groups, Segments) else None
    if may_call_directly(x, phi, weight, index):
        if isinstance(phi, Tensor) and phi.is_cpu:
            check_exponent(phi)
        return choose.center(x, phi, weight, groups, sweeps, phi_strictly_inside)
    exponent = (phi.detach(), 0.0) if isinstance(phi, Tensor) else (None, phi)
    return Center(*torch.ops.geonorm.center(x, *exponent, weight, *problem.grouping_to_args(groups), sweeps))
