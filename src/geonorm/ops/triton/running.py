"""The launch that updates running statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from ..running import Running
from .tiles import power_of_two

_NO_COPIES = (None, None, None, None)


def can_update(running: Running, x: Tensor, channels: int) -> bool:
    """Whether the kernel can update these buffers where they lie."""
    batches = running.batches
    if running.over or (isinstance(running.factor, Tensor) and running.factor.device != x.device):
        return False
    if batches is not None and (batches.dtype is not torch.int64 or batches.device != x.device):
        return False
    return all(
        buffer is None
        or (
            buffer.dtype is torch.float32
            and buffer.numel() == channels
            and buffer.is_contiguous()
            and buffer.device == x.device
        )
        for buffer in _buffers(running)
    )


def update(running: Running, rows: Tensor) -> None:
    """Move the buffers towards the statistics in the saved rows."""
    from .kernels import running_kernel

    factor = running.factor
    scale = 1.0 if running.seen is None else running.seen.normal_scale
    running_kernel[(1,)](
        rows, *_buffers(running), running.batches, factor if isinstance(factor, Tensor) else None,
        0.0 if isinstance(factor, Tensor) else float(factor), scale, len(rows), BC=min(1024, power_of_two(len(rows))),
    )  # fmt: skip
    changed = [buffer for buffer in (*running[:4], running.batches) if isinstance(buffer, Tensor)]
    torch.autograd.graph.increment_version(changed)


def _buffers(running: Running) -> tuple[Tensor | None, ...]:
    """Mean, variance, center and scale, and their copies."""
    return *running[:4], *(_NO_COPIES if running.seen is None else running.seen[:4])
