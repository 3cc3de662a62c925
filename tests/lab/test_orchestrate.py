"""All runs of a list: once each, counted, with failures beside the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.lab import Recipe, Store
from geonorm.lab.orchestrate import orchestrate

RECIPE = Recipe(norms=("bn", "none"), seeds=(0,), epochs=1, batch_size=512)


def test_runs_are_carried_out_once_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, runs = Store(tmp_path / "r.sqlite"), RECIPE.runs()
    first = orchestrate([*runs[:1], *runs[:1]], store, progress=True)
    assert first == (1, 0, 0, None, True)
    told = capsys.readouterr().err
    assert f"1 run, 1 at a time; results go to {store.path}" in told
    assert "already" not in told
    second = orchestrate(runs, store, workers=1, progress=True)
    assert (second.asked, second.already, second.left) == (2, 1, 0)
    assert second.elsewhere() == ""
    assert "1 of 2 runs were already done" in capsys.readouterr().err


def test_nothing_is_said_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert orchestrate([], Store(tmp_path / "r.sqlite"), workers=None, progress=True).asked == 0
    assert not capsys.readouterr().err


def test_a_failure_does_not_hide_what_is_done(tmp_path: Path) -> None:
    wrong = Recipe(norms=("bn",), seeds=(0,), epochs=1, model_options={"hiden": 8})
    store = Store(tmp_path / "r.sqlite")
    outcome = orchestrate([*RECIPE.runs(), *wrong.runs()], store)
    assert (outcome.asked, outcome.left) == (3, 1)
    assert "hiden" in str(outcome.failure)
    assert len(store.finished()) == 2


def test_runs_of_another_process_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "claim", lambda store, key: False)
    outcome = orchestrate(RECIPE.runs(), Store(tmp_path / "r.sqlite"))
    assert (outcome.left, outcome.failure) == (2, None)
    assert outcome.elsewhere().startswith("2 of 2 runs are being executed by another process")
