"""The guard around one norm while its statistics are measured."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..functional import guard
from ..ops import count_guarded


class Admitted(NamedTuple):
    """The part of a batch that is measured, and the arguments that the norm is called with."""

    x: Tensor
    element_weight: Tensor | None
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]


class InputGuard:
    """Judges the samples of every batch that reaches one norm, torch's or ours, and counts them.

    The norm gets the batch with its far samples pulled in, so its output is that of a guarded layer in training, and
    later norms measure the inputs that they would have there. A sample that is not finite never reaches the norm:
    its output is NaN, by which later norms recognize it, as in a guarded layer.

    Args:
        k: the radius in median distances.
    """

    def __init__(self, k: float) -> None:
        self.k = k
        self.samples = 0
        self.counts: Tensor | None = None  # batches, batches with a pull, samples pulled, samples not finite
        self.is_counting = True  # only in the first pass over the batches
        self._waiting: tuple[int, Tensor] | None = None

    def admit(
        self, x: Tensor, element_weight: Tensor | None, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Admitted:
        """Judge a batch that is about to enter the norm."""
        found = guard(x, self.k, mask=element_weight)
        if self.is_counting:
            self._count(found.factor)
        finite = ~found.factor.isnan()
        self._waiting = None
        if bool(finite.all()):
            return Admitted(found.output, element_weight, *_with_input(found.output, element_weight, inputs, kwargs))
        rows = finite.nonzero().flatten()
        self._waiting = len(x), rows
        x, element_weight = found.output[rows], None if element_weight is None else element_weight[rows]
        if len(rows) > 1:
            return Admitted(x, element_weight, *_with_input(x, element_weight, inputs, kwargs))
        if not len(rows):
            return Admitted(x, element_weight, *_with_input(x.new_zeros((2, *x.shape[1:])), None, inputs, kwargs))
        # A norm may refuse a single value per channel; the same value twice has the same statistics.
        twice = None if element_weight is None else torch.cat([element_weight, element_weight])
        return Admitted(x, element_weight, *_with_input(torch.cat([x, x]), twice, inputs, kwargs))

    def put_back(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """A forward hook: the output for samples that were removed is NaN."""
        if self._waiting is None:
            return None
        (number, rows), self._waiting = self._waiting, None
        whole = output.new_full((number, *output.shape[1:]), math.nan)
        whole[rows] = output[: len(rows)]
        return whole

    def _count(self, factor: Tensor) -> None:
        self.samples += len(factor)
        if self.counts is None:
            self.counts = torch.zeros(4, dtype=torch.long, device=factor.device)
        count_guarded(self.counts, factor)

    def note(self) -> str:
        """The note about it in a report."""
        pulled, broken = (0, 0) if self.counts is None else self.counts[2:].tolist()
        return f"pulled {pulled} of {self.samples} samples" + (f", {broken} not finite" if broken else "")


def _with_input(
    x: Tensor, element_weight: Tensor | None, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a norm with another input."""
    kwargs = {
        name: element_weight if name in ("mask", "element_weight") and value is not None else value
        for name, value in kwargs.items()
    }
    return ((x, *inputs[1:]), kwargs) if inputs else ((), {**kwargs, "input": x})
