"""Graphs in one text file with published folds: the layout of powerful-gnns (Xu et al., 2019).

number of graphs
nodes label                       once per graph, followed by one line per node:
tag degree neighbour neighbour …
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..extras import require
from .errors import DataError


def read_graphs(path: Path) -> list[Any]:
    """Graphs for torch_geometric; a node's feature is its tag, one column per tag in ascending order."""
    data = require("torch_geometric.data", "torch_geometric")
    numbers = iter(_lines(path))
    graphs: list[tuple[int, list[int], list[list[int]]]] = []
    try:
        (total,) = next(numbers)
        for _ in range(total):
            nodes, label = next(numbers)
            lines = [next(numbers) for _ in range(nodes)]
            for tag, degree, *neighbours in lines:
                if degree != len(neighbours) or not all(0 <= other < nodes for other in neighbours):
                    raise ValueError(f"a node with tag {tag} and degree {degree} has neighbours {neighbours}")
            graphs.append((label, [line[0] for line in lines], [line[2:] for line in lines]))
    except (StopIteration, ValueError) as error:
        reason = "it ends too early" if isinstance(error, StopIteration) else str(error)
        raise DataError(f"{path} after graph {len(graphs)}: {reason}; truncated or damaged, fetch it again") from error
    if next(numbers, None) is not None:
        raise DataError(f"{path} continues after its {total} graphs: damaged, fetch it again")
    tags = sorted({tag for _, own, _ in graphs for tag in own})
    labels = sorted({label for label, _, _ in graphs})
    column = {tag: i for i, tag in enumerate(tags)}
    found = []
    for label, own, others_of in graphs:
        x = torch.nn.functional.one_hot(torch.tensor([column[tag] for tag in own]), len(tags)).float()
        pairs = [(i, j) for i, others in enumerate(others_of) for j in others]
        edges = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T.contiguous()
        found.append(data.Data(x=x, edge_index=edges, y=torch.tensor([labels.index(label)])))
    return found


def read_folds(path: Path, graphs: int) -> tuple[Tensor, ...]:
    """Places of the test graphs of each fold, one fold per line."""
    folds = tuple(torch.tensor(line, dtype=torch.int64) for line in _lines(path))
    together = torch.cat(folds) if folds else torch.zeros(0, dtype=torch.int64)
    if len(folds) != 10 or len(together.unique()) != len(together) or together.min() < 0 or together.max() >= graphs:
        raise DataError(
            f"{path} does not hold 10 lines of different places among {graphs} graphs: damaged, fetch it again"
        )
    return folds


def _lines(path: Path) -> list[list[int]]:
    try:
        text = path.read_text(encoding="ascii")
        return [[int(word) for word in line.split()] for line in text.splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: fetch it again") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{path} is not a text of whole numbers, or is damaged ({error}): fetch it again") from error
