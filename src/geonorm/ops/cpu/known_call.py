"""A call on the kernels that is like an earlier one, so that nothing is left to decide.

On small tensors most of a call's time goes into finding out how to run it. A layer is called again and again with
tensors of the same kind: ``KnownCall`` keeps what was found, and ``fits`` checks in a few steps that it still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes
from ..problem import Inputs, Rule
from ..running import Running
from . import library
from .normalize import buffers_of, tell_autograd
from .plan import Plan, plan


class LayerTensors(NamedTuple):
    """The tensors of a layer that the kernels read and write in place.

    Attributes:
        values: φ, α, shift, γ and β, as numbers or as the layer's own parameters.
        running: the running statistics to update.
        buffers: these, their copies and the counter, as ``library.forward`` takes them.
        guard_counts: counts of guarded samples to update.
    """

    values: tuple[float | Tensor | None, ...]
    running: Running | None
    buffers: tuple[Tensor | None, ...]
    guard_counts: Tensor | None

    @property
    def updates(self) -> bool:
        """Whether running statistics or counts change."""
        return self.running is not None or self.guard_counts is not None

    def without_updates(self) -> LayerTensors:
        """The same for a call that leaves running statistics and counts as they are."""
        return self._replace(running=None, buffers=library.NO_BUFFERS, guard_counts=None)


class KnownCall(NamedTuple):
    """One kind of call. It holds no tensors, so a graph may keep it for backward.

    Attributes:
        plan: how the kernels run it.
        dtype, strides: of x.
        counts: entries of φ, α, shift, γ and β where they are tensors.
        shape_of_beta: its gradient has this shape; β itself is not needed in backward.
        divisor: γ over this is what the kernels multiply by: POP-Norm's κ.
    """

    plan: Plan
    dtype: torch.dtype
    strides: tuple[int, ...]
    counts: tuple[int, ...]
    shape_of_beta: torch.Size | None
    divisor: float = 1.0

    def fits(self, x: Tensor, own: LayerTensors) -> bool:
        """Whether the kernels may read x, and the tensors of the layer, where they lie."""
        if x.dtype is not self.dtype or x.stride() != self.strides or not x.is_cpu or x.is_neg():
            return False
        dtype, groups = self.plan.dtype, self.plan.arrangement.groups
        if not _lie_in_rows(own.values, self.counts, dtype):
            return False
        return own.running is None or _lie_in_rows(own.buffers[:8], (groups,) * 8, dtype)

    def forward(self, x: Tensor, own: LayerTensors) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """Output, state and verdict on the samples, as ``normalize``; None if the kernels refuse the data."""
        found, running = self.plan, own.running
        samples = x.new_empty(problem.verdict_size(x), dtype=found.dtype) if found.guarded else None
        y = torch.empty_like(x)
        state = x.new_empty((found.arrangement.groups, library.STATE_SIZE), dtype=torch.float64)
        parameters = self._scaled([value if isinstance(value, Tensor) else None for value in own.values])
        factor, scale = 0.0, 1.0
        if running is not None:
            assert isinstance(running.factor, float)
            factor, scale = running.factor, 1.0 if running.seen is None else running.seen.normal_scale
        done = library.forward(
            found.encoded_spec, x, y, None, parameters, state, own.buffers, factor, scale, samples, own.guard_counts
        )
        if not done:
            return None
        if running is not None:
            tell_autograd(running)
        return y, state, samples

    def backward(
        self,
        grad: Tensor,
        tensors: Sequence[Tensor | None],
        state: Tensor,
        samples: Tensor | None,
        needs: Sequence[bool],
    ) -> tuple[Tensor | None, ...] | None:
        """Gradients of x, φ, α, shift, γ and β; None where they are not needed.

        ``tensors``: all of these but β, as they were saved. None if one of them no longer lies where it did.
        """
        x, *parameters = tensors
        assert x is not None
        if not _lie_in_rows(parameters, self.counts, self.plan.dtype):
            return None
        if grad.dtype is not self.dtype or grad.stride() != self.strides or grad.is_neg():
            grad = torch.empty_like(x).copy_(grad)
        dx = torch.empty_like(x)
        parts: list[Tensor | None] = [None] * 5
        for i, value in enumerate(parameters):
            if value is not None and needs[1 + i]:
                parts[i] = torch.empty_like(value)
        if self.shape_of_beta is not None and needs[5]:
            parts[4] = x.new_empty(self.shape_of_beta, dtype=self.plan.dtype)
        parameters = self._scaled([*parameters, None])
        library.backward(self.plan.encoded_spec, x, grad, dx, None, parameters, state, parts, samples)
        if parts[3] is not None and self.divisor != 1:
            parts[3] /= self.divisor
        return dx, *parts

    def _scaled(self, parameters: list[Tensor | None]) -> list[Tensor | None]:
        gamma = parameters[3]
        if gamma is not None and self.divisor != 1:
            parameters[3] = gamma.detach() / self.divisor
        return parameters


def _lie_in_rows(values: Sequence[float | Tensor | None], counts: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether each tensor is one row of so many entries of that dtype. Somebody may have changed its ``data``."""
    for value, count in zip(values, counts, strict=False):
        if value is None or type(value) is float:
            continue
        assert isinstance(value, Tensor)
        if value.dtype is not dtype or value.numel() != count or not value.is_contiguous() or not value.is_cpu:
            return False
    return True


def known_call(
    x: Tensor,
    values: tuple[float | Tensor | None, ...],
    of: Inputs,
    groups: Axes,
    rule: Rule,
    running: Running | None,
    guard_counts: Tensor | None,
    divisor: float,
) -> tuple[KnownCall, LayerTensors] | None:
    """What calls like this one share; None if the kernels do not run it, or only with copies of its tensors.

    ``x``, ``values``: the input and the parameters of a layer, which lie in memory where those of ``of`` do. Its γ is
    that of ``of`` times the ``divisor``.
    """
    found = plan(of, groups, rule)
    if found is None or found.strides != of.x.stride() or torch.empty_like(x).stride() != x.stride():
        return None
    buffers: tuple[Tensor | None, ...] | None = library.NO_BUFFERS
    if running is not None:
        buffers = buffers_of(running, found)
        if buffers is None or buffers[0] is not running.mean or not isinstance(running.factor, float):
            return None
    assert buffers is not None
    a, beta = found.arrangement, values[4]
    counts = (a.phi_count, *(a.parameter_count,) * 4)
    call = KnownCall(found, x.dtype, x.stride(), counts, beta.shape if isinstance(beta, Tensor) else None, divisor)
    own = LayerTensors(values, running, buffers, guard_counts)
    return (call, own) if call.fits(x, own) else None
