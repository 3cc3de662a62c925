"""The two collectives behind all joint statistics. There are no others, so counting these counts all."""

from __future__ import annotations

import torch
from torch import Tensor

from .groups import explaining_failures


def all_gather(values: Tensor, name: str) -> Tensor:
    """The tensors of all processes, of one shape, in the order of ranks: ``[processes, ...]``."""
    import torch.distributed as dist

    group = dist.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]
    sent = values.detach().contiguous()
    found = torch.empty((group.size(), *sent.shape), dtype=sent.dtype, device=sent.device)
    with explaining_failures("all_gather", name):
        dist.all_gather(list(found.unbind(0)), sent, group)
    return found


def all_reduce_sum(values: Tensor, name: str) -> Tensor:
    """The sum over all processes."""
    import torch.distributed as dist

    group = dist.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]
    total = values.detach().clone(memory_format=torch.contiguous_format)
    with explaining_failures("all_reduce", name):
        dist.all_reduce(total, group=group)
    return total
