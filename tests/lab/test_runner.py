"""Runs: the same numbers whoever carries them out, and after any kill."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from geonorm.lab import Comparison, Recipe, Store, compare, run
from geonorm.lab.executors import default_workers, execute
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


def contents(store: Store, recipe: Recipe = SMALL) -> list[Any]:
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
    lines = [f"{name} = {value!r}".replace("'", '"') for name, value in SMALL.to_dict().items() if value != {}]
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
    with pytest.warns(UserWarning, match="starts anew"):
        execute([other], store)
    assert {one.key: one.figures for one in store.finished()}[other.key] == expected[other.key]


def broken_model() -> nn.Module:
    raise ValueError("no such model today")


def little_data() -> tuple[TensorDataset, TensorDataset]:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    samples = TensorDataset(x, (x[:, 0] > 0).long())
    return samples, samples


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    train, test = little_data()
    return DataLoader(train, 16, shuffle=True), DataLoader(test, 30)


def little_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_a_run_that_fails_is_named_and_can_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(RunsFailed, match=r"2 of 2 runs failed.*no such model today"):
        compare(broken_model, little_data, ["own", "ln"], seeds=1, epochs=1, store=tmp_path / "r.sqlite")


def test_a_norm_that_replaces_nothing_is_no_run_of_it(tmp_path: Path) -> None:
    """Left as it is, the model would pass for one with LayerNorm."""
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed.*expected ln to replace a norm.*gn\(groups=1\)"):
        compare(little_model, little_data, ["own", "ln"], seeds=1, epochs=1, store=tmp_path / "r.sqlite")


def test_own_model_and_data(tmp_path: Path) -> None:
    found = compare(
        little_model,
        little_data,
        ["own", "robustbn", "pop"],
        seeds=2,
        epochs=3,
        batch_size=20,
        store=tmp_path / "r.sqlite",
    )
    assert len(found.finished()) == 6
    assert [line.split()[0] for line in found.table().splitlines()[2:]] == ["own", "robustbn", "pop"]
    assert all(len(curve) == 3 for curve in found.curves().values())


def test_own_loaders(tmp_path: Path) -> None:
    found = compare(little_model, loaders, ["augbn(phi=1.5)"], seeds=[3], epochs=1, store=tmp_path / "r.sqlite")
    assert len(found.finished()) == 1


def test_data_that_is_no_pair(tmp_path: Path) -> None:
    with pytest.raises(RunsFailed, match="expected make_data to give"):
        compare(little_model, lambda: 3, ["bn"], seeds=1, epochs=1, store=tmp_path / "r.sqlite")


def test_folds(tmp_path: Path) -> None:
    recipe = Recipe(norms=("bn",), seeds=(0,), folds=3, epochs=1)
    found = run(recipe, tmp_path / "r.sqlite")
    assert sum(one.figures["clean"]["total"] for one in found.finished()) == 1797


def test_threads_are_divided() -> None:
    assert default_workers(1) >= 1
    assert default_workers(10**6) == 1
