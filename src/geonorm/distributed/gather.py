"""Rows that the processes of a group hold, brought together in every one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .groups import answered


def gather_rows(group: str, *tensors: Tensor, lengths: list[int] | None = None) -> tuple[list[Tensor], slice]:
    """Tensors of ``[rows, columns]`` from all processes, in the order of ranks, and where the own rows are.

    Processes may have different numbers of rows, or none: ``lengths``, if they are known. Rows travel side by side,
    filled up to the longest.
    """
    import torch.distributed as dist

    own = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
    rank, rows = own.rank(), len(tensors[0])
    packed = torch.cat(tensors, 1)
    if lengths is None:
        lengths = [length for length, *_ in gather_numbers(group, packed.device, rows)]
    longest = max(lengths)
    filled = packed if rows == longest else torch.cat([packed, packed.new_zeros(longest - rows, packed.shape[1])])
    parts = [torch.empty_like(filled) for _ in lengths]
    with answered(group):
        dist.all_gather(parts, filled.contiguous(), own)
    together = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
    first = sum(lengths[:rank])
    return list(together.split([value.shape[1] for value in tensors], 1)), slice(first, first + rows)


def gather_numbers(group: str, device: torch.device, *numbers: int) -> list[list[int]]:
    """A few whole numbers from every process, in the order of ranks."""
    import torch.distributed as dist

    own = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
    sent = torch.tensor(numbers, dtype=torch.int64, device=device)
    found = [torch.empty_like(sent) for _ in range(own.size())]
    with answered(group):
        dist.all_gather(found, sent, own)
    return [part.tolist() for part in found]
