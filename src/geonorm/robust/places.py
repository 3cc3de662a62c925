"""Records the inputs of a model and of its layers, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..introspect.axes import axes_of
from ..introspect.layouts import BOTH, CHANNELS_FIRST, keeps_statistics, own_forward
from ..introspect.observe import norms_of
from ..introspect.select import Where, chosen
from ..ops.torch.guard import sample_moments
from .sample_reference import STATISTICS, SampleReference

INPUT = "input"
_MAX_LAYERS = 8  # broken values show in early layers; late layers show unusual content
_MAX_HELD_BYTES = 1 << 30  # for moments held until there is a reference
_OPERATIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


class Place:
    """The samples at one place: their moments or, once memory is used up, their comparison with the first samples.

    Attributes:
        samples: how many were recorded.
        bytes: memory of the moments held.
        reference: how many samples the others are compared with.
        usable: whether samples can be judged by more than whether they are finite.
    """

    def __init__(self) -> None:
        self.samples = self.bytes = self.reference = 0
        self.usable = True
        self._usual: SampleReference | None = None
        self._held: list[tuple[Tensor, Tensor]] = []
        self._found: list[tuple[Tensor, Tensor]] = []

    def add(self, x: Tensor) -> None:
        """A batch of samples, as (N, C, *)."""
        mean, deviation = (part.float().cpu() for part in sample_moments(x, None)[:2])
        self.samples += len(x)
        if self._usual is not None:
            self._found.append(_compared(self._usual, mean, deviation))
        else:
            self._held.append((mean, deviation))
            self.bytes += 8 * mean.numel()

    def fix_reference(self) -> None:
        """Make the samples so far the reference for all later ones, and hold no more moments."""
        if self._usual is None:
            held = self._all_held()
            self._usual, self.reference = SampleReference(*held), self.samples
            self._found, self._held, self.bytes = [_compared(self._usual, *held)], [], 0

    def compared(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        """Figures ``[samples, 3]`` and farthest features ``[samples, 4]``; the sound samples are the reference."""
        if self._usual is not None:
            self.usable = self._usual.usable
            figures, farthest = zip(*self._found, strict=True)
            return torch.cat(figures), torch.cat(farthest)
        mean, deviation = self._all_held()
        usual = SampleReference(mean[sound], deviation[sound])
        self.reference, self.usable = self.samples, usual.usable
        return _compared(usual, mean, deviation)

    def _all_held(self) -> tuple[Tensor, Tensor]:
        means, deviations = zip(*self._held, strict=True)
        return torch.cat(means), torch.cat(deviations)


def _compared(usual: SampleReference, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    if usual.usable:
        return usual.figures(mean, deviation), usual.farthest(mean)
    finite = (mean.isfinite() & deviation.isfinite()).all(1, keepdim=True)
    nothing = mean.new_full((len(mean), 4), math.nan, dtype=torch.float64)
    return torch.where(finite, 0.0, math.inf).expand(-1, len(STATISTICS)), nothing


class Places:
    """The inputs of a model and of its norms, or of its convolutions and linear layers if it has no norms.

    Attributes:
        by_name: the places that all samples have reached, in the order of the model.
        skipped: the others, with the reason.
    """

    def __init__(self, model: nn.Module, layers: Where) -> None:
        norms = norms_of(model)
        is_chosen = chosen(model, layers)
        operations = {name: m for name, m in model.named_modules() if isinstance(m, _OPERATIONS)}
        self._most = _MAX_LAYERS if layers is None else math.inf
        watched = {name: m for name, m in (norms or operations).items() if is_chosen(name, m)}
        if layers is not None:  # a pattern may name operations of a model with norms, or any other layer
            leaves = {name: m for name, m in model.named_modules() if not list(m.children())}
            watched = watched or {name: m for name, m in leaves.items() if is_chosen(name, m)}
        self._watched, self._norms = watched, norms
        self.by_name: dict[str, Place] = {}
        self.skipped: dict[str, str] = {}
        self._expected = 0  # samples of this batch
        self._before = 0  # samples of all batches before it
        self._mixed = ""

    def add_input(self, x: Tensor, samples: int) -> None:
        """Record the input of the model before it runs; later records belong to these samples."""
        self._expected, self._mixed = samples, ""
        if x.is_floating_point() or (x.dim() > 3 and not x.is_complex()):
            values = x.detach().cpu().double()  # in which no square of a float32 overflows
            self._add(INPUT, values if x.dim() > 1 else values[:, None])
        else:
            self.skipped.setdefault(INPUT, "its values are categories, not quantities")

    def end_batch(self) -> None:
        """Skip places that did not see this batch: their samples cannot be compared."""
        self._before += self._expected
        for name in [name for name, place in self.by_name.items() if place.samples != self._before]:
            self._skip(name, "it did not run in every batch")
        if sum(place.bytes for place in self.by_name.values()) > _MAX_HELD_BYTES:
            for place in self.by_name.values():
                place.fix_reference()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the inputs of the layers inside this context."""
        modules = {**self._norms, **self._watched}
        handles = [m.register_forward_pre_hook(self._hook(name), with_kwargs=True) for name, m in modules.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str) -> Any:
        def record(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = next((value for value in (*inputs, *kwargs.values()) if isinstance(value, Tensor)), None)
            if name in self._watched and x is not None and x.is_floating_point():
                self._record(name or "(model)", _channels_first(module, x.detach()))
            if axes_of(module) == "batch" and not keeps_statistics(module):
                self._mixed = self._mixed or name or "(model)"

        return record

    def _record(self, name: str, x: Tensor) -> None:
        layers = len(self.by_name) - (INPUT in self.by_name)
        if name in self.skipped or (name not in self.by_name and (self._before or layers >= self._most)):
            return
        if self._mixed:
            self._skip(name, f"{self._mixed} before it normalizes over the batch, which mixes the samples")
        elif x.dim() < 2 or len(x) != self._expected:
            self._skip(name, f"expected {self._expected} samples in its input (got shape {tuple(x.shape)})")
        elif name not in self.by_name or self.by_name[name].samples == self._before:
            self._add(name, x)  # a layer that runs twice is recorded once

    def _add(self, name: str, x: Tensor) -> None:
        if x.numel():
            self.by_name.setdefault(name, Place()).add(x)

    def _skip(self, name: str, reason: str) -> None:
        self.by_name.pop(name, None)
        self.skipped[name] = reason


def _channels_first(module: nn.Module, x: Tensor) -> Tensor:
    """The input of a layer as (N, C, *)."""
    last = isinstance(module, nn.Linear) or axes_of(module) == "layer"
    if last and own_forward(module) not in (CHANNELS_FIRST, BOTH) and x.dim() > 2:
        shape = getattr(module, "normalized_shape", (0,))
        return x.movedim(-1, 1) if len(shape) == 1 else x
    return x
