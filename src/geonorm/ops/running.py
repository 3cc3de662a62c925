"""Running statistics: buffers that follow the batches."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def follow(buffer: Tensor, value: Tensor, factor: float | Tensor) -> None:
    """Move the buffer by ``factor`` towards the value, in place. Where the value is not finite the buffer stays.

    Selected, not branched: it compiles, and one bad channel does not hold up the others.
    """
    value = value.reshape(buffer.shape).to(buffer.dtype)
    buffer.copy_(torch.where(value.isfinite(), buffer + factor * (value - buffer), buffer))
