"""TU graphs through torch_geometric, and the one-file layout with its folds."""

from pathlib import Path

import pytest
import torch

from geonorm.lab.data import DataError, load, tu_graphs
from helpers import corrupt_files

pytest.importorskip("torch_geometric")
# Twenty graphs: paths of two and three nodes in turn; tags 4 and 9.
SIZES = [2, 3] * 10


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tu_graphs.SETS, "mutag", tu_graphs.Expected("MUTAG", (10, 10)))


@pytest.fixture
def collection(folder: Path, expected: None) -> Path:
    edges, graph_of, tags, first = [], [], [], 1
    for graph, size in enumerate(SIZES, 1):
        for node in range(size):
            graph_of.append(graph)
            tags.append(9 if node else 4)
            if node:
                edges += [(first + node - 1, first + node), (first + node, first + node - 1)]
        first += size
    raw = folder / "tu_graphs" / "MUTAG" / "raw"
    raw.mkdir(parents=True)
    (raw / "MUTAG_A.txt").write_text("".join(f"{a}, {b}\n" for a, b in edges))
    (raw / "MUTAG_graph_indicator.txt").write_text("".join(f"{g}\n" for g in graph_of))
    (raw / "MUTAG_node_labels.txt").write_text("".join(f"{t}\n" for t in tags))
    (raw / "MUTAG_graph_labels.txt").write_text("".join("1\n" if size == 2 else "-1\n" for size in SIZES))
    return raw


def test_right(collection: Path) -> None:
    task = load("mutag", test_share=0.2)
    assert (len(task.train), len(task.test), task.classes, task.official) == (16, 4, 2, False)
    for graph, label in zip(task.train.x, task.train.y, strict=True):
        assert graph.num_nodes == (2 if label == 1 else 3)
        assert graph.edge_index.shape[1] == 2 * (graph.num_nodes - 1)
        assert graph.x.shape[1] == task.input_shape[0]
        assert (graph.x.sum(1) == 1).all()
    assert [path.name for path in collection.parent.iterdir()] == ["raw"]  # nothing was written beside


def test_folds(collection: Path) -> None:
    folds = load("mutag", test_share=0.2).folds(5, seed=3)
    assert [len(fold.test) for fold in folds] == [4] * 5
    assert all(fold.test.y.bincount().tolist() == [2, 2] for fold in folds)
    with pytest.raises(DataError, match="came without folds"):
        load("mutag", test_share=0.2).published_folds()


@pytest.mark.parametrize(
    ("part", "action", "message"),
    [
        ("A", corrupt_files.truncate, "edge in one direction only|not a list of whole numbers|different lengths"),
        ("A", corrupt_files.flip_bit, "not a list of whole numbers, or is damaged"),
        (
            "A",
            lambda path: corrupt_files.flip_bit(path, 0.3, 1),
            "A.txt (has an edge|does not list)|not a list of whole numbers",
        ),
        ("A", corrupt_files.replace_with_web_page, "not a list of whole numbers"),
        ("graph_indicator", corrupt_files.truncate, "does not list pairs|does not number"),
        (
            "graph_indicator",
            lambda path: corrupt_files.flip_bit(path, 0.5, 2),
            "does not number|not a list of whole numbers",
        ),
        ("graph_indicator", Path.unlink, "graph_indicator.txt is missing"),
        ("graph_labels", corrupt_files.truncate, "does not number"),
        ("graph_labels", lambda path: path.write_text("1\n" * 20), "graphs per class, expected"),
        ("node_labels", corrupt_files.truncate, "node_labels.txt has"),
        ("node_labels", lambda path: path.write_text(""), "is empty"),
        ("A", Path.unlink, r"mutag is not at hand: looked for tu_graphs/MUTAG/raw/MUTAG_A.txt"),
    ],
)
def test_damaged(collection: Path, part: str, action, message: str) -> None:
    action(collection / f"MUTAG_{part}.txt")
    with pytest.raises(DataError, match=message):
        load("mutag")


@pytest.mark.parametrize("part", ["A", "graph_indicator", "graph_labels", "node_labels"])
def test_a_last_line_without_an_end_counts(collection: Path, part: str) -> None:
    """torch_geometric drops it: an edge, or the label of a graph."""
    before = load("mutag", test_share=0.2).pool()
    file = collection / f"MUTAG_{part}.txt"
    file.write_text(file.read_text().rstrip("\n"))
    after = load("mutag", test_share=0.2).pool()
    assert [graph.num_edges for graph in after.x] == [graph.num_edges for graph in before.x]
    assert torch.equal(after.y, before.y)


@pytest.fixture
def one_file(folder: Path, expected: None) -> Path:
    home = folder / "tu_graphs" / "powerful_gnns_format" / "MUTAG"
    home.mkdir(parents=True)
    pair, path = "2 5\n4 1 1\n9 1 0\n", "3 7\n4 1 1\n9 2 0 2\n9 1 1\n"
    (home / "MUTAG.txt").write_text("20\n" + (pair + path) * 10)
    (home / "10fold_test_idx.txt").write_text("".join(f"{19 - i} {i}\n" for i in range(9)) + "9\n")
    return home


def test_one_file(one_file: Path) -> None:
    task = load("mutag", layout="one-file")
    assert task.input_shape == (2,)
    assert sorted(graph.num_nodes for graph in task.test.x) == [2, 3]
    folds = task.published_folds()
    assert [len(fold.test) for fold in folds] == [2] * 9 + [1]
    assert [len(fold.train) for fold in folds] == [18] * 9 + [19]
    # Fold i tests the graphs 19 − i and i of the file: even ones have two nodes, odd ones three.
    for i, fold in enumerate(folds[:9]):
        assert [graph.num_nodes for graph in fold.test.x] == [SIZES[19 - i], SIZES[i]]
    graph = next(graph for graph in task.train.x if graph.num_nodes == 3)
    assert graph.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert torch.equal(graph.x, torch.tensor([[1.0, 0], [0, 1], [0, 1]]))


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("MUTAG.txt", corrupt_files.truncate, "it ends too early|has neighbours|not enough values"),
        ("MUTAG.txt", corrupt_files.flip_bit, "not a text of whole numbers, or is damaged"),
        ("MUTAG.txt", corrupt_files.replace_with_web_page, "not a text of whole numbers, or is damaged"),
        ("MUTAG.txt", lambda path: path.write_text(path.read_text() + "2 5\n"), "continues after its 20 graphs"),
        ("MUTAG.txt", lambda path: path.write_text("1\n1 0\n3 1 8\n"), r"has neighbours \[8\]"),
        ("MUTAG.txt", Path.unlink, "mutag is not at hand"),
        ("10fold_test_idx.txt", corrupt_files.truncate, "does not hold 10 lines"),
        (
            "10fold_test_idx.txt",
            lambda path: path.write_text("1 1\n" * 10),
            "does not hold 10 lines of different places",
        ),
        ("10fold_test_idx.txt", Path.unlink, "10fold_test_idx.txt is missing"),
    ],
)
def test_damaged_one_file(one_file: Path, name: str, action, message: str) -> None:
    action(one_file / name)
    with pytest.raises(DataError, match=message):
        load("mutag", layout="one-file")


def test_ptc_comes_from_its_one_file_where_there_is_no_other(one_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tu_graphs.SETS, "ptc", tu_graphs.Expected("PTC", (10, 10)))
    (one_file.parent / "PTC").mkdir()
    (one_file / "MUTAG.txt").rename(one_file.parent / "PTC" / "PTC.txt")
    task = load("ptc", test_share=0.2)
    assert (len(task.train), len(task.test), task.classes) == (16, 4, 2)
    with pytest.raises(DataError, match="came without folds"):
        task.published_folds()
    with pytest.raises(DataError, match="mutag is not at hand"):
        load("mutag")


def test_all_samples_for_testing_is_no_task(collection: Path) -> None:
    with pytest.raises(ValueError, match="test_share between 0 and 1"):
        load("mutag", test_share=1.0)


def test_unknown_layout(collection: Path) -> None:
    with pytest.raises(ValueError, match="'tu' or 'one-file'"):
        load("mutag", layout="csv")
