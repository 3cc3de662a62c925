"""Graphs of the TU collection (Morris et al., 2020) through torch_geometric, and of the one-file layout with folds."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..extras import require
from .errors import DataError
from .one_file_graphs import read_folds, read_graphs
from .places import find
from .task import Split, Task, check_share, drawn


class Expected(NamedTuple):
    """The expected content of a set: its name in the collection, and graphs per class."""

    name: str
    per_class: tuple[int, int]


SETS = {
    "mutag": Expected("MUTAG", (63, 125)),
    "ptc": Expected("PTC", (192, 152)),
    "ptc_mr": Expected("PTC_MR", (192, 152)),
    "proteins": Expected("PROTEINS", (663, 450)),
}
_NEEDED, _OPTIONAL = ("A", "graph_indicator", "graph_labels"), ("node_labels", "edge_labels", "node_attributes")


def places(name: str, layout: str = "tu") -> tuple[str, ...]:
    """The places where a set is looked up."""
    folder = SETS[name].name
    one_file = (f"tu_graphs/powerful_gnns_format/{folder}/{folder}.txt", f"{folder}/{folder}.txt")
    if layout == "one-file":
        return one_file
    several = tuple(f"{root}{folder}/raw/{folder}_A.txt" for root in ("tu_graphs/", "", "TUDataset/"))
    return (*several, *one_file) if name == "ptc" else several  # the collection has different graphs under that name


def how(name: str) -> str:
    """Instructions for getting the data."""
    known = SETS[name].name
    if name == "ptc":
        return (
            "Fetch dataset.zip of the repository weihua916/powerful-gnns and put its PTC.txt into a folder PTC: PTC_MR "
            "of the TU graph collection has other graphs. No published checksum is known, so nothing is downloaded."
        )
    return (
        f"Fetch {known} of the TU graph collection and put its files into {known}/raw/, as torch_geometric does. No "
        "published checksum is known, so nothing is downloaded."
    )


def tu_graphs(name: str, layout: str = "tu", test_share: float = 0.1, seed: int = 0) -> Task:
    """MUTAG, PTC, PTC_MR or PROTEINS: graphs whose nodes carry labels, two classes.

    PTC is the version of the powerful-gnns code (25.6 nodes per graph), PTC_MR the TU collection's (14.3): different
    graphs. No split is published; ``folds`` makes one for cross-validation.

    Args:
        name: ``"mutag"``, ``"ptc"``, ``"ptc_mr"`` or ``"proteins"``.
        layout: ``"tu"``, the collection's text files; or ``"one-file"``, that of powerful-gnns, which comes with the
            folds of ``published_folds``. The order of graphs may differ between the two. PTC comes from its
            one file for ``"tu"`` too, if there are no text files of it.
        test_share: the fraction of graphs for testing.
        seed: of the split.
    """
    if layout not in ("tu", "one-file"):
        raise ValueError(f"expected layout to be 'tu' or 'one-file' (got {layout!r})")
    check_share(test_share)
    path = find(name, places(name, layout), how(name))
    folds: tuple[Tensor, ...] = ()
    if path.stem == SETS[name].name:
        graphs = read_graphs(path)
    else:
        graphs = _through_torch_geometric(path.parent, SETS[name].name)
    if layout == "one-file":
        folds = read_folds(path.with_name("10fold_test_idx.txt"), len(graphs))
    y = torch.cat([graph.y.view(1) for graph in graphs])
    counts = tuple(y.bincount(minlength=2).tolist())
    if sorted(counts) != sorted(SETS[name].per_class):
        raise DataError(
            f"{path} and the files next to it contain {counts} graphs per class, expected {SETS[name].per_class}: "
            "damaged or a different set; fetch it again"
        )
    is_test = torch.zeros(len(y), dtype=torch.bool)
    is_test[folds[0] if folds else drawn(y, round(test_share * len(y)), seed)] = True
    train, test = (~is_test).nonzero().flatten(), is_test.nonzero().flatten()
    place = torch.empty_like(y).index_copy_(0, torch.cat([train, test]), torch.arange(len(y)))
    everything = Split(graphs, y)
    return Task(
        name,
        everything.take(train),
        everything.take(test),
        classes=2,
        input_shape=(graphs[0].x.shape[1],),
        official=False,
        test_folds=tuple(place[fold] for fold in folds),
    )


def _through_torch_geometric(raw: Path, name: str) -> list[Any]:
    """TUDataset on a copy, because it writes files next to the originals and downloads missing ones."""
    datasets = require("torch_geometric.datasets", "torch_geometric")
    _check_files(raw, name)
    with tempfile.TemporaryDirectory(prefix="geonorm-") as work:
        copy = Path(work) / name / "raw"
        copy.mkdir(parents=True)
        try:
            for part in (*_NEEDED, *_OPTIONAL):
                file = f"{name}_{part}.txt"
                if (raw / file).is_file():
                    # It drops the last line as if it were empty.
                    (copy / file).write_text((raw / file).read_text(encoding="ascii").rstrip("\n") + "\n")
            with contextlib.redirect_stderr(io.StringIO()):  # it prints messages
                found = datasets.TUDataset(work, name)
            return [found[i].clone() for i in range(len(found))]
        except (ValueError, RuntimeError, IndexError) as error:
            raise DataError(f"torch_geometric cannot read {raw} ({error}): damaged; fetch it again") from error


def _check_files(raw: Path, name: str) -> None:
    problem = _problem(raw, name)
    if problem:
        raise DataError(f"{raw}: {problem}: truncated or damaged; fetch it again")


def _problem(raw: Path, name: str) -> str:
    """Why the files are inconsistent, which torch_geometric does not check; empty if they are consistent."""
    edges, graph_of, labels = (_numbers(raw / f"{name}_{part}.txt") for part in _NEEDED)
    node_labels = _numbers(raw / f"{name}_node_labels.txt")
    nodes = len(graph_of)
    if edges.dim() != 2 or edges.shape[1] != 2 or edges.min() < 1 or edges.max() > nodes:
        return f"{name}_A.txt does not list pairs of nodes from 1 to {nodes}"
    if not torch.equal(graph_of.unique(), torch.arange(1, len(labels) + 1)) or (graph_of.diff() < 0).any():
        return f"{name}_graph_indicator.txt does not number {len(labels)} graphs in order"
    if len(node_labels) != nodes:
        return f"{name}_node_labels.txt has {len(node_labels)} nodes, {name}_graph_indicator.txt {nodes}"
    source, target = edges.T
    if (graph_of[source - 1] != graph_of[target - 1]).any():
        return f"{name}_A.txt has an edge between two graphs"
    there, back = (a * (nodes + 1) + b for a, b in ((source, target), (target, source)))
    if not torch.equal(there.sort().values, back.sort().values):
        return f"{name}_A.txt has an edge in one direction only"
    return ""


def _numbers(path: Path) -> Tensor:
    try:
        rows = [
            [int(cell) for cell in line.split(",")] for line in path.read_text(encoding="ascii").split("\n") if line
        ]
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: all files of the set are needed; fetch it again") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{path} is not a list of whole numbers, or is damaged ({error}): fetch it again") from error
    if len({len(row) for row in rows}) != 1:
        raise DataError(f"{path} is empty or has rows of different lengths: truncated; fetch it again")
    return torch.tensor(rows).squeeze(1)  # a column of one number becomes a list
