"""Runs: the same numbers whoever carries them out, and after any kill."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from geonorm.lab import Comparison, Recipe, Store, run
from geonorm.lab.executors import default_workers, execute
from geonorm.lab.recipe import Run
from geonorm.lab.runner import RunsFailed, checkpoint_of

SMALL = Recipe(
    norms=("bn", "diffphi"),
    losses=("erm", "cvar(alpha=0.5)"),
    corruptions=("offset(share=0.1)",),
    evaluations=("clean", "noise(std=0.3)", "bim(eps=0.1, steps=2, samples=50)", "clean(recalibrated=true)"),
    seeds=(0, 1),
    epochs=2,
    batch_size=128,
)
SCRIPT = """
import sys
from geonorm.lab import Recipe, run
run(Recipe.from_toml(sys.argv[1]), sys.argv[2])
"""


def contents(store: Store) -> list[Any]:
    """All that must be equal, which is everything but times and hosts."""
    return [(one.key, one.figures, store.curve(one.key)) for one in sorted(store.finished())]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return run(SMALL, tmp_path_factory.mktemp("whole") / "r.sqlite")


def test_figures(whole: Comparison) -> None:
    assert len(whole.finished()) == 8
    for one in whole.finished():
        assert set(one.figures) == set(SMALL.evaluations)
        assert 0.5 < one.figures["clean"]["accuracy"] <= 1
        assert one.figures["bim(eps=0.1, steps=2, samples=50)"]["total"] == 50
        curve = whole.store.curve(one.key)
        assert len(curve) == 2
        if one.choices["loss"] == "erm":  # the mean over the worst half, with broken samples in it, may rise
            assert curve[1]["loss"] < curve[0]["loss"]
        assert ("phi" in curve[0]) == (one.choices["norm"] == "diffphi")
        assert not checkpoint_of(whole.store, next(r for r in whole.runs if r.key == one.key)).exists()
    text = whole.table()
    assert "diffphi" in text
    assert "cvar(alpha=0.5), clean" in text


def test_every_norm_starts_and_shuffles_alike(tmp_path: Path) -> None:
    """aug(phi=2) is BatchNorm: the same weights and batches give the same run."""
    recipe = Recipe(norms=("bn", "augbn(phi=2)"), seeds=(5,), epochs=2)
    store = run(recipe, tmp_path / "r.sqlite").store
    first, second = (store.curve(one.key)[-1]["loss"] for one in recipe.runs())
    assert first == pytest.approx(second, rel=1e-3)


def test_finished_runs_are_not_repeated(whole: Comparison) -> None:
    before = contents(whole.store)
    epochs: list[int] = []
    run(SMALL, whole.store.path, watch=lambda one, epoch, figures: epochs.append(epoch))
    assert not epochs
    assert contents(whole.store) == before


@pytest.mark.slow
def test_processes_give_the_same_numbers(whole: Comparison, tmp_path: Path) -> None:
    found = run(SMALL, tmp_path / "r.sqlite", workers=2)
    assert contents(found.store) == contents(whole.store)


@pytest.mark.slow
def test_ray_gives_the_same_numbers(whole: Comparison, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed; geonorm[ray] brings it")
    try:
        found = run(SMALL, tmp_path / "r.sqlite", workers="ray")
        assert contents(found.store) == contents(whole.store)
    finally:
        ray.shutdown()


def start(recipe: Path, store: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(recipe), str(store)])


def as_toml(path: Path) -> Path:
    lines = [f"{name} = {json.dumps(value)}" for name, value in SMALL.to_dict().items() if value != {}]
    path.write_text("\n".join(lines))
    return path


def kill_and_go_on(whole: Comparison, folder: Path, kills: int, seed: int) -> None:
    recipe, path = as_toml(folder / "recipe.toml"), folder / "r.sqlite"
    chance = random.Random(seed)
    for _ in range(kills):
        process = start(recipe, path)
        began = time.monotonic()
        while not path.exists() and process.poll() is None and time.monotonic() - began < 60:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(recipe, path).wait(timeout=300) == 0
    assert contents(Store(path)) == contents(whole.store)


def test_three_kills(whole: Comparison, tmp_path: Path) -> None:
    kill_and_go_on(whole, tmp_path, 3, seed=0)


@pytest.mark.slow
def test_twenty_kills(whole: Comparison, tmp_path: Path) -> None:
    kill_and_go_on(whole, tmp_path, 20, seed=1)


@pytest.mark.slow
def test_two_processes_share_the_work(whole: Comparison, tmp_path: Path) -> None:
    recipe, path = as_toml(tmp_path / "recipe.toml"), tmp_path / "r.sqlite"
    both = [start(recipe, path) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert contents(Store(path)) == contents(whole.store)


def test_an_interrupted_run_is_taken_up(whole: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between two epochs, with a damaged state beside it."""
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    store = Store(tmp_path / "r.sqlite")
    first = SMALL.runs()[0]

    def stop(one: Any, epoch: int, figures: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute([first], store, watch=stop)
    assert len(store.curve(first.key)) == 1
    state = checkpoint_of(store, first)
    assert torch.load(state, weights_only=True)["done"] == 1
    execute([first], store)
    expected = {one.key: one.figures for one in whole.finished()}
    assert store.finished()[0].figures == expected[first.key]

    other = SMALL.runs()[1]
    with pytest.raises(KeyboardInterrupt):
        execute([other], store, watch=stop)
    checkpoint_of(store, other).write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="starts over"):
        execute([other], store)
    assert {one.key: one.figures for one in store.finished()}[other.key] == expected[other.key]


def interrupted(store: Store, one: Run) -> Path:
    """A run stopped after its first epoch; its saved state."""

    def stop(*news: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute([one], store, watch=stop)
    return checkpoint_of(store, one)


def test_a_state_without_its_store_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the file was moved away to start anew: the curve must begin at the first epoch."""
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    one = SMALL.runs()[0]
    interrupted(Store(tmp_path / "r.sqlite"), one)
    (tmp_path / "r.sqlite").rename(tmp_path / "old.sqlite")
    store = Store(tmp_path / "r.sqlite")
    with pytest.warns(UserWarning, match="belongs to another results file"):
        execute([one], store)
    assert len(store.curve(one.key)) == 2


def test_a_state_of_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    store, one = Store(tmp_path / "r.sqlite"), SMALL.runs()[0]
    saved = interrupted(store, one)
    torch.save({**torch.load(saved, weights_only=True), "model": {}}, saved)
    with pytest.raises(RunsFailed, match="does not fit the model, which has changed since: delete it"):
        execute([one], store)


def test_a_flipped_bit_in_a_saved_state_is_noticed(
    whole: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch would read it, and the run would end with other figures."""
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    store, one = Store(tmp_path / "r.sqlite"), SMALL.runs()[0]
    saved = interrupted(store, one)
    weights = next(iter(torch.load(saved, weights_only=True)["model"].values())).numpy().tobytes()
    data = bytearray(saved.read_bytes())
    place = data.find(weights[:64])
    assert place > 0, "else this tests nothing"
    data[place + 3] ^= 1 << 6
    saved.write_bytes(data)
    with pytest.warns(UserWarning, match="checksum .* does not fit.*starts over"):
        execute([one], store)
    expected = {one.key: one.figures for one in whole.finished()}
    assert store.finished()[0].figures == expected[one.key]


def test_no_room_for_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")

    monkeypatch.setattr(torch, "save", full)
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    store, one = Store(tmp_path / "r.sqlite"), SMALL.runs()[0]
    with pytest.raises(RunsFailed, match=r"cannot be saved in .*free space.*everything so far is kept"):
        execute([one], store)
    assert len(store.curve(one.key)) == 1
    monkeypatch.undo()
    execute([one], store)
    assert len(store.finished()) == 1


def test_runs_with_others_are_told(tmp_path: Path) -> None:
    recipe = Recipe(norms=("bn",), seeds=(0,), epochs=1)
    store = Store(tmp_path / "r.sqlite")
    key = store.add(recipe.runs()[0].choices)
    with sqlite3.connect(store.path) as file:
        file.execute("INSERT INTO claims VALUES (?, 'elsewhere', 1, '1', ?)", (key, time.time()))
    with pytest.warns(UserWarning, match="1 of 1 runs are being executed by another process"):
        assert not run(recipe, store.path).finished()


def test_a_norm_that_the_model_cannot_have_shows_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'in' is over instance"):
        run(Recipe(norms=("bn", "in"), seeds=(0,), epochs=1), tmp_path / "r.sqlite")


def test_a_spurious_attribute_reaches_the_test_samples(tmp_path: Path) -> None:
    recipe = Recipe(data="subpopulations", norms=("bn",), corruptions=("spurious(share=0.05)",), seeds=(0,), epochs=1)
    (one,) = run(recipe, tmp_path / "r.sqlite").finished()
    agrees, disagrees = one.figures["clean"]["groups"]
    assert agrees > 0.9
    assert disagrees < 0.5


def test_the_process_stays_as_it_was(tmp_path: Path) -> None:
    threads, states = torch.get_num_threads(), (torch.get_rng_state(), random.getstate())
    torch.set_num_threads(threads + 1)
    run(Recipe(norms=("bn",), seeds=(0,), epochs=1), tmp_path / "r.sqlite")
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_folds(tmp_path: Path) -> None:
    recipe = Recipe(norms=("bn",), seeds=(0,), folds=3, epochs=1)
    found = run(recipe, tmp_path / "r.sqlite")
    assert sum(one.figures["clean"]["total"] for one in found.finished()) == 1797


def test_threads_are_divided() -> None:
    assert default_workers(1) >= 1
    assert default_workers(10**6) == 1
