"""GCN and GIN for whole graphs, as in the published code of GraphNorm (Cai et al., 2021), on torch_geometric.

That code's ``num_layers`` counts the head, so that its default of 5 makes 4 convolutions; the AugNorm paper says five.
Here ``layers`` counts convolutions: 5 as in the paper's text, 4 as in the code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...nn.graphnorm import AugGraphNorm
from ..extras import require
from .neighbours import Neighbours
from .parts import MakeNorm, make_activation, norm_maker, scaled


def _normalized(norm: nn.Module, x: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
    """Apply a norm to node features; a norm over the nodes of each graph also gets the graph of each node."""
    y: Tensor = norm(x, batch, batch_size) if isinstance(norm, AugGraphNorm) else norm(x)
    return y


class _NodePerceptron(nn.Module):
    """Linear, norm, activation, linear on each node."""

    def __init__(self, before: int, hidden: int, norm: MakeNorm, activation: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(before, hidden), nn.Linear(hidden, hidden)
        self.norm, self.activation = norm(hidden), make_activation(activation)

    def forward(self, x: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        y: Tensor = self.second(self.activation(_normalized(self.norm, self.first(x), batch, batch_size)))
        return y


class GraphNet(nn.Module):
    """Graph convolutions, each with norm, activation and a shortcut; the nodes of a graph summed; a linear head.

    Args:
        kind: ``"gcn"`` or ``"gin"``. In a GIN, neighbours are summed and a perceptron with its own norm follows.
        features: per node.
        norm: a spec, see ``geonorm.norms()``, or a callable from features to a layer.
        classes: number of outputs.
        activation: by name.
        hidden: features of a hidden layer.
        layers: number of convolutions.
        dropout: fraction of the scores dropped in training, as in the published code (the paper's 0.05; that code's
            default is 0.5).
        self_loops: whether a node of a GCN is its own neighbour; the published code does so only when asked.
        width, depth: factors on hidden and layers.

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import GraphNet
        >>> x, edges = torch.randn(5, 7), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> GraphNet("gcn", 7, "auggraph", classes=2, hidden=8)(x, edges, torch.tensor([0, 0, 1, 1, 1])).shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        kind: str,
        features: int,
        norm: str | MakeNorm = "bn",
        classes: int = 10,
        activation: str = "relu",
        hidden: int = 64,
        layers: int = 5,
        dropout: float = 0.05,
        self_loops: bool = True,
        width: float = 1.0,
        depth: float = 1.0,
    ) -> None:
        super().__init__()
        geometric = require("torch_geometric.nn", "torch_geometric")
        if kind not in ("gcn", "gin"):
            raise ValueError(f"expected kind to be 'gcn' or 'gin' (got {kind!r})")
        make, wide = norm_maker(norm, dim=1), scaled(hidden, width)
        self.convolutions, self.perceptrons, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.self_loops = self_loops
        for layer in range(scaled(layers, depth)):
            before = wide if layer else features
            if kind == "gcn":
                self.convolutions.append(geometric.GCNConv(before, wide))
            else:
                self.perceptrons.append(_NodePerceptron(before, wide, make, activation))
            self.norms.append(make(wide))
        self.activation = make_activation(activation)
        self.pool = geometric.SumAggregation()
        self.head, self.dropout = nn.Linear(wide, classes), nn.Dropout(dropout)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> Tensor:
        """Class scores of each graph; ``batch`` names the graph of each node, without it all nodes are one graph."""
        neighbours = self._neighbours(edge_index, x)
        for layer, norm in enumerate(self.norms):
            if self.perceptrons:
                y = self.perceptrons[layer](x + neighbours.sum(x), batch, batch_size)
            else:  # the layer's own forward would recompute the edge weights in every layer
                convolution: Any = self.convolutions[layer]
                y = neighbours.sum(convolution.lin(x)) + convolution.bias
            y = self.activation(_normalized(norm, y, batch, batch_size))
            x = y + x if layer else y
        scores: Tensor = self.dropout(self.head(self.pool(x, batch, dim_size=batch_size)))
        return scores

    def _neighbours(self, edges: Tensor, x: Tensor) -> Neighbours:
        """The edges with weight 1; for a GCN divided by the square roots of the degrees at both ends."""
        if self.perceptrons:
            return Neighbours(edges, torch.ones(edges.shape[1], dtype=x.dtype), len(x))
        norm = require("torch_geometric.nn.conv.gcn_conv", "torch_geometric").gcn_norm
        edges, weights = norm(edges, None, len(x), add_self_loops=self.self_loops, dtype=x.dtype)
        return Neighbours(edges, weights, len(x))
