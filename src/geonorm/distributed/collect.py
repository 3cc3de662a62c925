"""The two collectives that joint statistics are made of. There are no others: to count them is to count these."""

from __future__ import annotations

import torch
from torch import Tensor

from .groups import answered


def all_gather(values: Tensor, name: str) -> Tensor:
    """The tensors of all processes, of one shape, in the order of ranks: ``[processes, ...]``."""
    import torch.distributed as dist

    group = dist.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]
    sent = values.detach().contiguous()
    found = torch.empty((group.size(), *sent.shape), dtype=sent.dtype, device=sent.device)
    with answered(name):
        dist.all_gather(list(found.unbind(0)), sent, group)
    return found


def all_add(values: Tensor, name: str) -> Tensor:
    """The sum over all processes."""
    import torch.distributed as dist

    group = dist.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]
    total = values.detach().clone(memory_format=torch.contiguous_format)
    with answered(name):
        dist.all_reduce(total, group=group)
    return total
