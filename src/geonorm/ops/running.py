"""Running statistics: buffers that are updated from every batch, and the switch that pauses them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

# A plain global: torch.compile guards on it, and traces again when it changes.
_PAUSED = 0


class Seen(NamedTuple):
    """Copies of the running statistics from the last update, which show what was written since.

    Tools made for torch write only the mean and the variance. If the mean differs from its copy and the center does
    not, the center is stale and starts again from the mean; the same holds for scale and variance. ``mean`` is there
    if ``center`` is, ``var`` if ``scale`` is.
    """

    mean: Tensor | None
    var: Tensor | None
    center: Tensor | None
    scale: Tensor | None
    normal_scale: float  # the squared spread of standard normal data: what the scale is over the variance


class Running(NamedTuple):
    """Buffers of a layer, one entry per channel, and how far they move towards each batch.

    ``var`` tracks the unbiased variance, ``scale`` the squared spread. ``over`` names dimensions of the statistics that
    are averaged first (instances). ``batches`` counts batches.
    """

    mean: Tensor
    var: Tensor
    center: Tensor | None
    scale: Tensor | None
    factor: float | Tensor
    over: tuple[int, ...] = ()
    batches: Tensor | None = None
    seen: Seen | None = None


@torch.no_grad()  # nothing may be saved for backward: checkpointing compares saved tensors with and without an update
def update_running_stats_(
    running: Running, center: Tensor, spread: Tensor, mean: Tensor, var: Tensor, mass: Tensor
) -> None:
    """Update the buffers from the statistics of a batch. Groups without values are ignored."""
    _adopt_changes(running)
    present = mass > 0
    unbiased = var * (mass / (mass - 1).clamp_min(1e-30)).to(var.dtype)
    pairs = [
        (running.mean, mean),
        (running.var, torch.where(mass > 1, unbiased, math.nan)),  # one value has no variance
        (running.center, center),
        (running.scale, spread.square()),
    ]
    for buffer, value in pairs:
        if buffer is None:
            continue
        if running.over:
            total = torch.where(present, value, 0.0).sum(running.over)
            value = total / present.sum(running.over)
        else:
            value = torch.where(present, value, math.nan)
        move_towards_(buffer, value, running.factor)
    if running.seen is not None:
        for copy, buffer in zip(running.seen[:4], running[:4], strict=True):
            if copy is not None and buffer is not None:
                copy.copy_(buffer)
    if running.batches is not None:
        running.batches.add_(1)


def _adopt_changes(running: Running) -> None:
    """Start the center from the mean, and the scale from the variance, where another tool wrote those alone."""
    seen = running.seen
    if seen is None:
        return
    for own, source, seen_own, seen_source, factor in (
        (running.center, running.mean, seen.center, seen.mean, 1.0),
        (running.scale, running.var, seen.scale, seen.var, seen.normal_scale),
    ):
        if own is not None and seen_own is not None and seen_source is not None:
            stale = (source != seen_source).any() & (own == seen_own).all()
            own.copy_(torch.where(stale, source * factor, own))


@torch.no_grad()
def move_towards_(buffer: Tensor, value: Tensor, factor: float | Tensor) -> None:
    """Move the buffer by ``factor`` towards the value, in place. Where the value is not finite the buffer stays.

    ``torch.where`` instead of a branch: it compiles, and one bad channel does not block the others.
    """
    value = value.reshape(buffer.shape).to(buffer.dtype)
    buffer.copy_(torch.where(value.isfinite(), (1 - factor) * buffer + factor * value, buffer))


def statistics_paused() -> bool:
    """Whether running statistics must stay as they are."""
    return _PAUSED > 0


@contextmanager
def pause_statistics() -> Iterator[None]:
    """Running statistics of this library's layers do not change inside this context. Contexts may be nested."""
    global _PAUSED
    _PAUSED += 1
    try:
        yield
    finally:
        _PAUSED -= 1
