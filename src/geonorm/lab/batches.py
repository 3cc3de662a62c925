"""Samples in batches, in an order determined by a seed and an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .data import Split
from .ddp_team import Team
from .devices import CPU, moved
from .packed_graphs import PackedGraphs


class Batch(NamedTuple):
    """The arguments for the model, and the labels."""

    inputs: tuple[Any, ...]
    labels: Tensor

    def scores(self, model: nn.Module) -> Tensor:
        """The output of the model."""
        found: Tensor = model(*self.inputs)
        return found


def in_order(split: Split, size: int) -> Iterator[Batch]:
    """All samples in their original order."""
    for part in torch.arange(len(split)).split(size):
        yield _batch(split, part)


def shuffled(split: Split, size: int, seed: int, epoch: int, team: Team) -> Iterator[tuple[int, Batch]]:
    """All samples, in an order determined by seed and epoch: the size of each batch, and this process's part of it.

    A last batch of a single sample, which has no statistics, is left out if the others are larger.
    """
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    for part in torch.randperm(len(split), generator=generator).split(size):
        if len(part) > 1 or size == 1 or len(split) == 1:
            yield len(part), _batch(split, team.part(part))


class Inputs:
    """The inputs of all samples in batches on a device, read again in every iteration."""

    def __init__(self, split: Split, size: int, device: torch.device | None = None) -> None:
        self.split, self.size, self.device = split, size, device or torch.device(CPU)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (moved(batch.inputs, self.device) for batch in in_order(self.split, self.size))


def _batch(split: Split, index: Tensor) -> Batch:
    if not isinstance(split.x, list):
        return Batch((split.x[index],), split.y[index])
    if split not in _PACKED:
        _PACKED[split] = PackedGraphs(split.x)
    return Batch(_PACKED[split].batch(index), split.y[index])


_PACKED: WeakKeyDictionary[Split, PackedGraphs] = WeakKeyDictionary()
