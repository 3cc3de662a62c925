"""Gathering rows from all processes of a group in each of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .collect import all_gather


def gather_rows(group: str, *tensors: Tensor) -> tuple[list[Tensor], slice]:
    """Tensors of ``[rows, columns]`` from all processes, in the order of ranks, and the slice of this process's rows.

    Processes may have different numbers of rows, or none. All send as many rows as the longest has, padded with 0.
    """
    import torch.distributed as dist

    rank = dist.distributed_c10d._resolve_process_group(group).rank()  # type: ignore[attr-defined, arg-type]
    rows = len(tensors[0])
    packed = torch.cat(tensors, 1)
    own = torch.tensor([rows], dtype=torch.int64, device=packed.device)
    lengths: list[int] = all_gather(own, group)[:, 0].tolist()
    longest = max(lengths)
    filled = packed if rows == longest else torch.cat([packed, packed.new_zeros(longest - rows, packed.shape[1])])
    parts = all_gather(filled, group)
    together = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
    first = sum(lengths[:rank])
    return list(together.split([value.shape[1] for value in tensors], 1)), slice(first, first + rows)
