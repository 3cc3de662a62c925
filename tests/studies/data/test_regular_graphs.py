"""Graphs made on the spot: degrees are the class."""

import pytest
import torch

from geonorm.lab.data import load


def test_regular_graphs() -> None:
    pytest.importorskip("torch_geometric")
    task = load("regular_graphs", train_size=12, test_size=6)
    for graph in task.train.x:
        degree = torch.bincount(graph.edge_index[0], minlength=len(graph.x))
        assert torch.equal(degree, torch.bincount(graph.edge_index[1], minlength=len(graph.x)))
        assert (degree == 2 * (int(graph.y) + 1)).all()
        assert len(graph.edge_index.unique(dim=1).T) == len(graph.edge_index.T), "an edge stands twice"
    with pytest.raises(ValueError, match="classes to be a whole number from 2 to 7"):
        load("regular_graphs", classes=8)
