"""Running statistics: buffers that follow the batches, and the switch that stops them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# A plain global: a compiler that traces guards on it, and traces anew when it changes.
_PAUSED = 0


@torch.no_grad()
def follow(buffer: Tensor, value: Tensor, factor: float | Tensor) -> None:
    """Move the buffer by ``factor`` towards the value, in place. Where the value is not finite the buffer stays.

    Selected, not branched: it compiles, and one bad channel does not hold up the others.
    """
    value = value.reshape(buffer.shape).to(buffer.dtype)
    buffer.copy_(torch.where(value.isfinite(), buffer + factor * (value - buffer), buffer))


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
