"""Running statistics: buffers that follow the batches."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Running(NamedTuple):
    """Buffers of a layer, one entry per channel, and how far they move towards each batch.

    ``var`` follows the unbiased variance, ``scale`` the squared spread. ``over`` names dimensions of the statistics
    that are averaged first (instances).
    """

    mean: Tensor
    var: Tensor
    center: Tensor
    scale: Tensor | None
    factor: float | Tensor
    over: tuple[int, ...] = ()


def follow_batch(running: Running, center: Tensor, spread: Tensor, mean: Tensor, var: Tensor, mass: Tensor) -> None:
    """Let the buffers follow the statistics of a batch."""
    unbiased = var * (mass / (mass - 1).clamp_min(1e-30)).to(var.dtype)
    pairs = [
        (running.mean, mean),
        (running.var, torch.where(mass > 1, unbiased, math.nan)),  # one value has no variance
        (running.center, center),
        (running.scale, spread.square()),
    ]
    for buffer, value in pairs:
        if buffer is not None:
            value = value.detach()
            follow(buffer, value.mean(running.over) if running.over else value, running.factor)


@torch.no_grad()
def follow(buffer: Tensor, value: Tensor, factor: float | Tensor) -> None:
    """Move the buffer by ``factor`` towards the value, in place. Where the value is not finite the buffer stays.

    Selected, not branched: it compiles, and one bad channel does not hold up the others.
    """
    value = value.reshape(buffer.shape).to(buffer.dtype)
    buffer.copy_(torch.where(value.isfinite(), buffer + factor * (value - buffer), buffer))
