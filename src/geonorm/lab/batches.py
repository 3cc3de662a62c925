"""Samples in batches, in an order that a seed and an epoch fix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .data import Split
from .extras import need
from .team import Team


class Batch(NamedTuple):
    """Inputs as the model takes them, and labels."""

    inputs: tuple[Any, ...]
    labels: Tensor

    def scores(self, model: nn.Module) -> Tensor:
        """What the model says."""
        found: Tensor = model(*self.inputs)
        return found


def in_order(split: Split, size: int) -> Iterator[Batch]:
    """All samples, as they come."""
    for part in torch.arange(len(split)).split(size):
        yield _batch(split, part)


def shuffled(split: Split, size: int, seed: int, epoch: int, team: Team) -> Iterator[tuple[int, Batch]]:
    """All samples in an order of their own for every seed and epoch: the size of each batch, and this process's part.

    A last batch of one sample is left out: it has no statistics of its own.
    """
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    for part in torch.randperm(len(split), generator=generator).split(size):
        if len(part) > 1 or len(split) == 1:
            yield len(part), _batch(split, team.part(part))


def _batch(split: Split, index: Tensor) -> Batch:
    if isinstance(split.x, list):
        graphs = need("torch_geometric.data", "torch_geometric").Batch.from_data_list(
            [split.x[i] for i in index.tolist()]
        )
        return Batch((graphs.x, graphs.edge_index, graphs.batch, graphs.num_graphs), split.y[index])
    return Batch((split.x[index],), split.y[index])
