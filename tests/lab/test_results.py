"""What a comparison found, and comparisons found again in a results file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from geonorm.lab import Comparison, Recipe, Store
from geonorm.lab.results import Column, Pair


def filled(path: Path, *recipes: Recipe, skip: int = 0) -> Store:
    """A store with made-up results, all but the last few runs."""
    store = Store(path)
    runs = [run for recipe in recipes for run in recipe.runs()]
    for run in runs:
        store.add(run.choices)
    for i, run in enumerate(runs[: len(runs) - skip]):
        store.finish(run.key, {text: {"accuracy": 0.5 + 0.01 * i} for text in run["evaluations"]}, 1.0)
    return store


def test_a_store_holds_several_comparisons(tmp_path: Path) -> None:
    first = Recipe(norms=("bn", "ln"), corruptions=("clean", "gain"), seeds=(0, 1), epochs=3)
    second = Recipe(norms=("bn",), seeds=(0,), epochs=4)
    filled(tmp_path / "r.sqlite", first, second, skip=1)
    one, other = Comparison.from_store(tmp_path / "r.sqlite")
    assert [run.key for run in one.runs] == [run.key for run in first.runs()]
    assert (one.title(), other.title()) == ("mlp on digits, 3 epochs", "mlp on digits, 4 epochs")
    assert one.norms() == ["bn", "ln"]
    assert (len(one.finished()), len(other.runs), len(other.finished())) == (8, 1, 0)
    assert other.table().splitlines()[2:] == []


def test_no_such_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a file of results \(got .*none.sqlite', which does not exist"):
        Comparison.from_store(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


def test_columns_are_named_by_what_differs(tmp_path: Path) -> None:
    plain = Recipe(losses=("cvar(alpha=0.5)",), seeds=(0,))
    assert list(Comparison(tuple(plain.runs()), Store(tmp_path / "r.sqlite")).columns().values()) == ["clean"]
    rich = Recipe(corruptions=("clean", "gain"), evaluations=("noise(std=0.1)", "clean"), seeds=(0,))
    labels = Comparison(tuple(rich.runs()), Store(tmp_path / "r.sqlite")).columns()
    assert list(labels.values()) == ["clean, noise(std=0.1)", "clean, clean", "gain, noise(std=0.1)", "gain, clean"]
    assert labels[Column("erm", "gain", "clean")] == "gain, clean"


def test_accuracies_by_pair(tmp_path: Path) -> None:
    recipe = Recipe(norms=("bn", "ln"), seeds=(3,), folds=2)
    comparison = Comparison(tuple(recipe.runs()), filled(tmp_path / "r.sqlite", recipe, skip=1))
    (column,) = comparison.accuracies().values()
    assert column["bn"] == pytest.approx({Pair(3, 0): 50.0, Pair(3, 1): 52.0})
    assert column["ln"] == pytest.approx({Pair(3, 0): 51.0})


def test_the_table_leaves_lost_runs_out(tmp_path: Path) -> None:
    recipe = Recipe(norms=("bn",), seeds=(0, 1, 2))
    store = Store(tmp_path / "r.sqlite")
    for run, value in zip(recipe.runs(), (0.9, math.nan, 0.92), strict=True):
        store.add(run.choices)
        store.finish(run.key, {"clean": {"accuracy": value}}, 1.0)
    assert Comparison(tuple(recipe.runs()), store).table().splitlines()[-1].split() == ["bn", "91.0", "±", "1.4"]
