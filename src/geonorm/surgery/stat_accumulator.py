"""Measuring the statistics of one norm over many batches, exactly."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..introspect.layouts import is_ours, layout_of
from ..introspect.moments import PooledMoments
from .conversion_record import HOOKS, RECORD
from .input_guard import InputGuard
from .report import Change, Left, Report


class StatAccumulator:
    """Pooled statistics of the values that reach one norm.

    Mean and variance are pooled batch by batch. Other centers and spreads cannot be pooled: the inputs are kept, and
    the layer itself measures them as one batch. Instance statistics are averages over instances, which can be pooled.

    Args:
        name: of the norm in its model.
        layer: the norm.
        guard: the radius of the guard for all norms; ``None`` for that of the layer, if it has one.
    """

    def __init__(self, name: str, layer: Any, guard: float | None = None) -> None:
        self.name, self.layer = name, layer
        self.shadow = measuring_copy(layer)
        layout = layout_of(layer)
        self.per_instance = layout is not None and layout.axes == "instance"
        # An instance norm sees each sample alone and cannot compare it; one that is not finite is left out of the
        # average.
        self.drops_broken, self.broken = self.per_instance and guard is not None, 0
        k = guard if guard is not None or not is_ours(layer) else getattr(layer, "guard", None)
        self.guard = None if self.per_instance or k is None else InputGuard(k)
        self.keeps_inputs = not self.per_instance and is_ours(layer) and not _has_plain_moments(layer)
        self.rank = 2 + (1 if layout is None or layout.dim is None else layout.dim)
        self.is_finite = True
        self.averages = False  # of batch centers, where the inputs do not fit
        self.batches, self.values = 0, 0
        self.bytes = 0  # of all its inputs
        self.kept: list[tuple[Tensor, Tensor | None]] | None = [] if self.keeps_inputs else None
        self._moments = PooledMoments()
        self._averaged = 0.0

    def count(self, x: Tensor, element_weight: Tensor | None) -> None:
        """Add the size and the plain moments of a batch: every layer needs them, once."""
        if self.drops_broken:
            x, element_weight = self._finite_instances(x, element_weight)
            if not len(x):
                return
        self.batches += 1
        self.bytes += size_of(x, element_weight)
        x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        self.values += x.shape[0] if self.per_instance else x.numel() // x.shape[1]
        if self.per_instance:
            self.is_finite = self.is_finite and bool(x.isfinite().all())
            self.shadow.momentum = x.shape[0] / self.values
            self.shadow(x, **({} if element_weight is None else {"element_weight": element_weight}))
            return
        self._moments.add(x, element_weight)

    def _finite_instances(self, x: Tensor, element_weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        values = x if element_weight is None else torch.where(element_weight > 0, x, 0.0)
        finite = values.isfinite().flatten(1).all(1)
        self.broken += int((~finite).sum())
        return x[finite], None if element_weight is None else element_weight[finite]

    def keep(self, x: Tensor, element_weight: Tensor | None) -> None:
        """Keep the inputs themselves, channel by channel."""
        assert self.kept is not None
        self.kept.append((_by_channel(x), None if element_weight is None else _by_channel(element_weight.expand_as(x))))

    def average(self, x: Tensor, element_weight: Tensor | None) -> None:
        """Add a batch to an average in which each batch counts by its number of values."""
        own = float((x.numel() if element_weight is None else element_weight.sum()) / x.shape[1])
        self._averaged += own
        self.shadow.momentum = own / self._averaged
        self.shadow(x, **({} if element_weight is None else {"element_weight": element_weight}))

    def finish(self) -> None:
        """Measure the inputs that were kept, and release them."""
        if not self.kept:
            return
        values = torch.cat([x for x, _ in self.kept], 1)
        whole = None
        if any(weight is not None for _, weight in self.kept):
            whole = torch.cat([torch.ones_like(x) if weight is None else weight.to(x) for x, weight in self.kept], 1)
        self.kept = None
        shape = [1, len(values), *[1] * (self.layer.spatial_dims - 1), values.shape[1]]
        self.shadow.momentum = 1.0
        self.shadow(values.view(shape), **({} if whole is None else {"element_weight": whole.view(shape)}))

    def commit(self, report: Report) -> None:
        """Write the measured statistics into the layer's buffers, or report why that is not possible."""
        kind = type(self.layer).__name__
        if not self.batches:
            seen = self.broken or (self.guard.samples if self.guard is not None else 0)
            reason = f"all {seen} samples are not finite; the old statistics are kept"
            report.left.append(Left(self.name or "(model)", kind, reason if seen else "no batch went through it"))
            return
        found = dict(self.shadow.named_buffers(recurse=False))
        if not self.per_instance:
            found["running_mean"], found["running_var"] = self._moments.mean, self._moments.var(correction=1)
            if is_ours(self.layer) and not self.keeps_inputs:
                found["running_center"] = found["running_mean"]
        found["num_batches_tracked"] = torch.tensor(self.batches)
        found.pop("guard_counts", None)  # of training
        own = {name: buffer for name, buffer in self.layer._buffers.items() if buffer is not None}
        found = {name: value.to(own[name]) for name, value in found.items() if name in own}
        if not self.is_finite or not all(bool(value.isfinite().all()) for value in found.values()):
            reason = "the batches give statistics that are not finite (or none); the old ones are kept"
            report.left.append(Left(self.name or "(model)", kind, reason))
            return
        for name, value in found.items():
            own[name].copy_(value)
        if is_ours(self.layer):
            self.layer._mark_consistent()
        what = "instances" if self.per_instance else "values"
        notes = [] if self.guard is None else [self.guard.note()]
        if self.broken:
            notes.append(f"{self.broken} of {self.broken + self.values} samples not finite")
        if self.averages:
            size = f"{self.bytes / 1e9:.3g} GB"
            notes.append(f"center averaged over batches: its inputs take {size}, more than memory allows")
        counted = f"{self.values} {what} in {self.batches} {'batch' if self.batches == 1 else 'batches'}"
        report.changed.append(Change(self.name or "(model)", kind, counted, "; ".join(notes)))


def element_weight_of(x: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    """The mask or the element weights that the layer was called with, in the shape of x."""
    given: Tensor | None = kwargs.get("mask") if kwargs.get("mask") is not None else kwargs.get("element_weight")
    return None if given is None else given.expand_as(x)


def size_of(x: Tensor, element_weight: Tensor | None) -> int:
    """Bytes needed to keep a batch."""
    return x.numel() * x.element_size() * (1 if element_weight is None else 2)


def _has_plain_moments(layer: Any) -> bool:
    others = ("running_scale", "running_upper")
    return layer.phi_start == 2 and not layer.learn_phi and all(getattr(layer, name, None) is None for name in others)


def measuring_copy(layer: nn.Module) -> Any:
    """A copy that measures for the layer, without its hooks, guard and process group: its input is judged already."""
    alone: dict[str, Any] = {
        name: layer.__dict__[name] for name in ("process_group", "guard") if name in layer.__dict__
    }
    kept = {name: layer.__dict__[name] for name in HOOKS}
    record = layer.__dict__.pop(RECORD, None)
    try:
        for name, hooks in kept.items():
            layer.__dict__[name] = type(hooks)()
        layer.__dict__.update(dict.fromkeys(alone))
        shadow = copy.deepcopy(layer)
    finally:
        layer.__dict__.update(kept | alone)
        if record is not None:
            layer.__dict__[RECORD] = record
    shadow.train()
    return shadow


def _by_channel(x: Tensor) -> Tensor:
    """The values as rows of channels; a copy, since the model may still change x in place."""
    rows = x.movedim(1, 0).flatten(1)
    return rows.clone() if rows.data_ptr() == x.data_ptr() else rows
