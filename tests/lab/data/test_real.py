"""The real data, where they are at hand: counts and figures that others have published."""

import functools
import os

import pytest
import torch

from geonorm.lab.data import load, sources

pytestmark = pytest.mark.skipif(
    not os.environ.get("GEONORM_DATA"), reason="needs real data: set GEONORM_DATA to the folder that holds them"
)


@functools.cache
def real(name: str, **options):
    if not next(source for source in sources() if source.name == name).at_hand:
        pytest.skip(f"{name} is not in GEONORM_DATA")
    return load(name, **options)


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "features"),
    [
        ("mutag", 188, 17.93, 7),
        ("ptc", 344, 25.56, 19),
        ("ptc_mr", 344, 14.29, 18),
        pytest.param("proteins", 1113, 39.06, 3, marks=pytest.mark.slow),
    ],
)
def test_tu_graphs(name: str, graphs: int, nodes: float, features: int) -> None:
    """Average nodes as the TU collection and the GraphNorm paper give them."""
    pool = real(name).pool()
    assert len(pool) == graphs
    assert sum(graph.num_nodes for graph in pool.x) / graphs == pytest.approx(nodes, abs=0.005)
    assert all(graph.x.shape[1] == features for graph in pool.x)


@pytest.mark.parametrize(
    ("name", "size", "untested"),
    [("mutag", 18, 8), ("ptc", 34, 4), pytest.param("proteins", 111, 3, marks=pytest.mark.slow)],
)
def test_published_folds(name: str, size: int, untested: int) -> None:
    task = real(name, layout="one-file")
    folds = task.published_folds()
    assert [len(fold.test) for fold in folds] == [size] * 10
    assert len(task.pool()) - 10 * size == untested


@pytest.mark.parametrize("name", ["mutag", "ptc", pytest.param("proteins", marks=pytest.mark.slow)])
def test_one_file_holds_the_graphs_of_the_collection(name: str) -> None:
    """Nodes, edges and how often each label occurs; the columns of features may stand in another order."""

    def looks(task) -> list:
        return sorted(
            (graph.num_nodes, graph.num_edges, graph.x.sum(0).sort().values.tolist()) for graph in task.pool().x
        )

    assert looks(real(name, layout="one-file")) == looks(real(name))


@pytest.mark.slow
def test_cifar100_subset() -> None:
    task = real("cifar100_subset", test_size=500)
    assert (len(task.train), len(task.test), task.classes) == (10000, 500, 100)
    # Published means of CIFAR-100; the subset is a fifth of it.
    torch.testing.assert_close(task.mean, torch.tensor([0.50708, 0.48655, 0.44092]), rtol=0, atol=0.01)


@pytest.mark.slow
def test_cifar10() -> None:
    task = real("cifar10")
    assert (task.train.x.shape, task.test.x.shape) == ((50000, 3, 32, 32), (10000, 3, 32, 32))
    torch.testing.assert_close(task.mean, torch.tensor([0.49139968, 0.48215841, 0.44653091]))
    torch.testing.assert_close(task.std, torch.tensor([0.24703223, 0.24348513, 0.26158784]))
    assert task.train.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # official order
    assert task.class_names[6] == "frog"
