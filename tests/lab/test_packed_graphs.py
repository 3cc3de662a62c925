"""Batches of packed graphs against torch_geometric's own."""

from __future__ import annotations

import pytest
import torch

from geonorm.lab.packed_graphs import PackedGraphs

data = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed; geonorm[lab] brings it")


def test_batches_are_torch_geometrics() -> None:
    torch.manual_seed(0)
    graphs = []
    for nodes in (5, 1, 9, 3, 7):  # one without edges
        edges = torch.randint(0, nodes, (2, 0 if nodes == 1 else 2 * nodes))
        graphs.append(data.Data(x=torch.randn(nodes, 4), edge_index=edges))
    packed = PackedGraphs(graphs)
    for index in ([0, 1, 2, 3, 4], [3], [4, 1, 1, 0], []):
        x, edges, batch, number = packed.batch(torch.tensor(index, dtype=torch.int64))
        assert number == len(index)
        if not index:
            assert x.shape == (0, 4)
            continue
        theirs = data.Batch.from_data_list([graphs[i] for i in index])
        assert torch.equal(x, theirs.x)
        assert torch.equal(edges, theirs.edge_index)
        assert torch.equal(batch, theirs.batch)
