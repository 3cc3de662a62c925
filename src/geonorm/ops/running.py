"""Running statistics: buffers that follow the batches, and the switch that stops them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

# A plain global: a compiler that traces guards on it, and traces anew when it changes.
_PAUSED = 0


class Running(NamedTuple):
    """Buffers of a layer, one entry per channel, and how far they move towards each batch.

    ``var`` follows the unbiased variance, ``scale`` the squared spread. ``over`` names dimensions of the statistics
    that are averaged first (instances). ``batches`` counts this one too. ``seen``: copies to keep, and of
    which buffers.
    """

    mean: Tensor
    var: Tensor
    center: Tensor | None
    scale: Tensor | None
    factor: float | Tensor
    over: tuple[int, ...] = ()
    batches: Tensor | None = None
    seen: tuple[tuple[Tensor, Tensor], ...] = ()


@torch.no_grad()  # nothing here may be saved for backward: checkpointing compares what was, with and without it
def update_running_stats_(
    running: Running, center: Tensor, spread: Tensor, mean: Tensor, var: Tensor, mass: Tensor
) -> None:
    """Let the buffers follow the statistics of a batch. Groups without values have none."""
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
        follow(buffer, value, running.factor)
    refresh_seen(running)
    if running.batches is not None:
        running.batches.add_(1)


def refresh_seen(running: Running) -> None:
    """Bring the copies of the buffers up to date."""
    for copy, buffer in running.seen:
        copy.copy_(buffer)


@torch.no_grad()
def follow(buffer: Tensor, value: Tensor, factor: float | Tensor) -> None:
    """Move the buffer by ``factor`` towards the value, in place. Where the value is not finite the buffer stays.

    Selected, not branched: it compiles, and one bad channel does not hold up the others.
    """
    value = value.reshape(buffer.shape).to(buffer.dtype)
    buffer.copy_(torch.where(value.isfinite(), (1 - factor) * buffer + factor * value, buffer))


def statistics_paused() -> bool:
    """Whether running statistics must stay as they are."""
    return _PAUSED > 0


@contextmanager
def pause_statistics() -> Iterator[None]:
    """Within, the running statistics of this library's layers stay as they are. May be nested."""
    global _PAUSED
    _PAUSED += 1
    try:
        yield
    finally:
        _PAUSED -= 1
