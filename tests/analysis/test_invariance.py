"""The result of `invariance`, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import invariance

ROWS, COLUMNS = 6, 5


def net(operation: nn.Module, *norm: nn.Module) -> nn.Sequential:
    """An operation and its norm, then a head that sees the size of its input."""
    return nn.Sequential(operation, *norm, nn.Tanh(), nn.Linear(ROWS, 3))


def linear(bias: bool = True) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(COLUMNS, ROWS, bias=bias)


def batch(size: int = 16) -> Tensor:
    return torch.randn(size, COLUMNS, generator=torch.Generator().manual_seed(4))


def test_a_result_is_a_table_a_dict_and_a_picture() -> None:
    found = invariance(net(linear(), nn.BatchNorm1d(ROWS)), batch())
    assert found.table().splitlines()[2].split()[:3] == ["0.weight", "row", "6"]
    assert found.to_dict()["units"][0]["kind"] == "row"
    assert len(found.plot().axes) == 1
    assert found.surprises() == []


@pytest.mark.parametrize(
    ("model", "batches", "error", "words"),
    [
        (nn.Linear(3, 2), [], ValueError, "at least one batch"),
        (nn.Linear(3, 2), torch.randn(0, 3), ValueError, "at least one batch"),
        (nn.Linear(3, 2), 5, TypeError, "expected a batch"),
        (nn.Linear(3, 2), [{"x": 1}], TypeError, "forward=lambda"),
        (nn.Linear(3, 2), torch.full((2, 3), math.nan), ValueError, "finite outputs"),
        (nn.Linear(3, 2, device="meta"), torch.randn(2, 3), ValueError, "meta"),
        (nn.LazyLinear(2), torch.randn(2, 3), ValueError, "lazy"),
        ("model", torch.randn(2, 3), TypeError, "torch.nn.Module"),
    ],
    ids=["none", "empty", "number", "dict", "nan", "meta", "lazy", "string"],
)
def test_errors_say_what_to_do(model, batches, error, words: str) -> None:
    with pytest.raises(error, match=words):
        invariance(model, batches)
