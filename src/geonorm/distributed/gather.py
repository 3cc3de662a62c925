"""Rows that the processes of a group hold, brought together in every one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .groups import answered


def gather_rows(group: str, *tensors: Tensor) -> tuple[list[Tensor], slice]:
    """Tensors of ``[rows, columns]`` from all processes, in the order of ranks, and where the own rows are.

    Processes may have different numbers of rows, or none. They travel side by side, filled up to the longest.
    """
    import torch.distributed as dist

    own = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
    size, rank, rows = own.size(), own.rank(), len(tensors[0])
    packed = torch.cat(tensors, 1)
    with answered(group):
        counts = [torch.zeros(1, dtype=torch.int64, device=packed.device) for _ in range(size)]
        dist.all_gather(counts, torch.full((1,), rows, dtype=torch.int64, device=packed.device), own)
        lengths = [int(count) for count in counts]
        longest = max(lengths)
        filled = packed if rows == longest else torch.cat([packed, packed.new_zeros(longest - rows, packed.shape[1])])
        parts = [torch.empty_like(filled) for _ in range(size)]
        dist.all_gather(parts, filled.contiguous(), own)
    together = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
    first = sum(lengths[:rank])
    return list(together.split([value.shape[1] for value in tensors], 1)), slice(first, first + rows)
