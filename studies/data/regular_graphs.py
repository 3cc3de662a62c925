"""Synthetic graphs with identical nodes, to show what a norm over each graph does to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geonorm.lab.data.task import Split, Task
from geonorm.lab.extras import require


def regular_graphs(train_size: int = 300, test_size: int = 300, classes: int = 3, seed: int = 0) -> Task:
    """Circulant graphs of 16 to 32 nodes with degree 2, 4, 6, ..., which is the class; all nodes have the feature 1.

    Sums over neighbours reveal the degree, but are the same for all nodes of a graph: a norm that subtracts the mean of
    each graph leaves nothing.

    Args:
        train_size, test_size: number of graphs.
        classes: number of degrees, at most 7.
        seed: of the graphs.
    """
    for name, size, most in (("train_size", train_size, None), ("test_size", test_size, None), ("classes", classes, 7)):
        if size < 2 or (most is not None and size > most):
            limit = "" if most is None else f" to {most}"
            raise ValueError(f"expected {name} to be a whole number from 2{limit} (got {size})")
    generator = torch.Generator().manual_seed(seed)
    train, test = (_drawn(size, classes, generator) for size in (train_size, test_size))
    return Task("regular_graphs", train, test, classes=classes, input_shape=(1,))


def _drawn(size: int, classes: int, generator: torch.Generator) -> Split:
    data = require("torch_geometric.data", "torch_geometric")
    y = torch.arange(size) % classes
    graphs: list[Any] = []
    for label in y:
        nodes = int(torch.randint(16, 33, (), generator=generator))
        steps = 1 + torch.randperm((nodes - 1) // 2, generator=generator)[: int(label) + 1]  # each adds two neighbours
        graphs.append(data.Data(x=torch.ones(nodes, 1), edge_index=_circulant(nodes, steps), y=label.view(1)))
    return Split(graphs, y)


def _circulant(nodes: int, steps: Tensor) -> Tensor:
    """Edges from every node to those these numbers of places away around a ring, in both directions."""
    start = torch.arange(nodes).repeat(2 * len(steps))
    end = (start + torch.cat([steps, -steps]).repeat_interleave(nodes)) % nodes
    return torch.stack([start, end])
