"""Many graphs in a few arrays, from which a batch is made without a loop over its graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class PackedGraphs:
    """torch_geometric graphs, packed.

    Args:
        graphs: each with ``x`` and ``edge_index``.

    Examples:
        >>> import torch
        >>> from types import SimpleNamespace as Graph
        >>> from geonorm.lab.packed_graphs import PackedGraphs
        >>> pair = Graph(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> x, edges, graph, number = PackedGraphs([pair, pair, pair]).batch(torch.tensor([2, 0]))
        >>> edges.tolist(), graph.tolist(), number
        ([[0, 1, 2, 3], [1, 0, 3, 2]], [0, 0, 1, 1], 2)
    """

    def __init__(self, graphs: Sequence[Any]) -> None:
        self.x, self.edges = torch.cat([one.x for one in graphs]), torch.cat([one.edge_index for one in graphs], 1)
        self.nodes = torch.tensor([len(one.x) for one in graphs])
        self.links = torch.tensor([one.edge_index.shape[1] for one in graphs])
        self.first_node, self.first_link = _starts(self.nodes), _starts(self.links)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """Features of all nodes of some graphs, their edges, the graph of each node, and the number of graphs."""
        nodes, links = self.nodes[index], self.links[index]
        x = self.x[_ranges(self.first_node[index], nodes)]
        edges = self.edges[:, _ranges(self.first_link[index], links)] + _starts(nodes).repeat_interleave(links)
        return x, edges, torch.arange(len(index)).repeat_interleave(nodes), len(index)


def _starts(lengths: Tensor) -> Tensor:
    return lengths.cumsum(0) - lengths


def _ranges(firsts: Tensor, lengths: Tensor) -> Tensor:
    """first, first + 1, ... of every range, one after the other."""
    shift = (firsts - _starts(lengths)).repeat_interleave(lengths)
    return shift + torch.arange(len(shift))
