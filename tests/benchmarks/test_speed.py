"""Measured ratios: how they are taken, stored, and shown."""

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import speed
from benchmarks.speed.results import Result, slope
from benchmarks.speed.timing import compare, saved_bytes


def results() -> list[Result]:
    about = ("a machine", "versions", 2, "short")
    return [
        Result(*about, "row", "(1, 2)", "torch", 10.0, 1.0, 1.0, 1.0),
        Result(*about, "row", "(1, 2)", "geonorm", 20.0, 2.0, 1.9, 2.1, "8", "1.5"),
        Result(*about, "row", "(3, 4)", "torch", 10.0, 1.0, 1.0, 1.0),
        Result(*about, "row", "(3, 4)", "geonorm", 5.0, 0.5, 0.4, 0.6, "8", "1.5"),
    ]


def test_table_csv_and_picture(tmp_path: Path) -> None:
    assert "| row | ≤ 1.5 | 1.00 |" in speed.table(results())
    assert "2.00 (missed)" in speed.table(results()[:2])
    alone = [Result(*("a machine", "versions", 1, "short"), "row", "(1, 2)", "geonorm", 20.0, 1.7, 1.6, 1.8)]
    assert "| row | ≤ 1.5 | 1.00 | 1.70 |" in speed.table(results() + alone)
    for _ in range(2):
        speed.append(results(), tmp_path / "new" / "results.csv")
    with (tmp_path / "new" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8  # earlier results stay
    assert rows[1]["machine"] == "a machine"
    speed.picture(results(), tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes()[:4] == b"\x89PNG"


def test_ratios_and_memory() -> None:
    x = torch.randn(1000, requires_grad=True)
    found = compare({"once": lambda: x.exp(), "many": lambda: [x.exp() for _ in range(200)]}, 0.1)
    assert found["once"].ratio == 1
    assert found["many"].ratio > 4
    assert saved_bytes(lambda x: x * x.exp(), x) == 2 * 4000
    assert slope([1, 10, 100], [2.0, 20.0, 200.0]) == pytest.approx(1)
