"""Sums over neighbours, and the graph networks made of them, against torch_geometric's layers."""

from __future__ import annotations

import pytest
import torch

from geonorm.lab.models import GraphNet
from geonorm.lab.models.neighbours import Neighbours

geometric = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed; geonorm[lab] brings it")


def edges_of(nodes: int, number: int) -> torch.Tensor:
    edges = torch.randint(0, nodes, (2, number))
    return edges[:, edges[0] != edges[1]]


def test_gradient() -> None:
    torch.manual_seed(0)
    edges = edges_of(6, 20)
    neighbours = Neighbours(edges, torch.rand(edges.shape[1], dtype=torch.float64), 6)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(neighbours.sum, x)


@pytest.mark.parametrize("self_loops", [True, False])
def test_a_gcn_layer_is_torch_geometrics(self_loops: bool) -> None:
    """Directed edges: both ends have degrees of their own."""
    torch.manual_seed(0)
    net, edges, x = GraphNet("gcn", 4, "none", layers=1, self_loops=self_loops), edges_of(7, 20), torch.randn(7, 4)
    theirs = geometric.GCNConv(4, 64, add_self_loops=self_loops)
    theirs.load_state_dict(net.convolutions[0].state_dict())
    expected = net.head(theirs(x, edges).relu().sum(0, keepdim=True))
    torch.testing.assert_close(net.eval()(x, edges), expected)


def test_a_gin_layer_is_torch_geometrics() -> None:
    torch.manual_seed(0)
    net, edges, x = GraphNet("gin", 4, "none", layers=1), edges_of(7, 20), torch.randn(7, 4)
    inside = net.perceptrons[0]
    theirs = geometric.GINConv(torch.nn.Sequential(inside.first, torch.nn.ReLU(), inside.second))
    expected = net.head(theirs(x, edges).relu().sum(0, keepdim=True))
    torch.testing.assert_close(net.eval()(x, edges), expected)


def test_edges_out_of_range() -> None:
    for edge, got in (([[0], [3]], "got 0 to 3"), ([[-1], [2]], "got -1 to 2")):
        with pytest.raises(ValueError, match=rf"nodes 0 to 2 \({got}\)"):
            Neighbours(torch.tensor(edge), torch.ones(1), 3)
