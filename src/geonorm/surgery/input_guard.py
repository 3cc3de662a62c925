"""The guard around one norm while its statistics are measured."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..functional import guard
from ..ops import count_guarded


class Admitted(NamedTuple):
    """What of a batch is measured, and the arguments that the norm is called with."""

    x: Tensor
    share: Tensor | None
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]


class InputGuard:
    """Judges every batch that reaches one norm, torch's or ours, and counts.

    The norm gets the batch with its far samples pulled in: what it hands on is what a guarded layer would hand on in
    training, so that later norms measure what they would see there. A sample that is not finite never reaches the norm;
    it comes out as NaN and is known by that to every later norm, as in a guarded layer.

    Args:
        k: the radius in median distances.
    """

    def __init__(self, k: float) -> None:
        self.k = k
        self.samples = 0
        self.counts: Tensor | None = None  # as of a layer: batches, those with a pull, samples pulled, not finite
        self.is_counting = True  # in the first pass over the batches, not in further ones
        self._waiting: tuple[int, Tensor] | None = None

    def admit(self, x: Tensor, share: Tensor | None, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Admitted:
        """A batch on its way into the norm."""
        found = guard(x, self.k, mask=share)
        if self.is_counting:
            self._count(found.factor)
        finite = ~found.factor.isnan()
        self._waiting = None
        if bool(finite.all()):
            return Admitted(found.output, share, *_with_input(found.output, share, inputs, kwargs))
        rows = finite.nonzero().flatten()
        self._waiting = len(x), rows
        x, share = found.output[rows], None if share is None else share[rows]
        if len(rows) > 1:
            return Admitted(x, share, *_with_input(x, share, inputs, kwargs))
        if not len(rows):
            return Admitted(x, share, *_with_input(x.new_zeros((2, *x.shape[1:])), None, inputs, kwargs))
        # A norm may refuse a single value per channel: twice the same has the same statistics.
        twice = None if share is None else torch.cat([share, share])
        return Admitted(x, share, *_with_input(torch.cat([x, x]), twice, inputs, kwargs))

    def put_back(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """A forward hook: samples that were kept away come out as NaN."""
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
        """What a report says about it."""
        pulled, broken = (0, 0) if self.counts is None else self.counts[2:].tolist()
        return f"pulled {pulled} of {self.samples} samples" + (f", {broken} not finite" if broken else "")


def _with_input(
    x: Tensor, share: Tensor | None, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a norm with another input."""
    kwargs = {
        name: share if name in ("mask", "element_weight") and value is not None else value
        for name, value in kwargs.items()
    }
    return ((x, *inputs[1:]), kwargs) if inputs else ((), {**kwargs, "input": x})
