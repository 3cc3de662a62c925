"""Progress: what a watcher sees in the store, lines where nobody looks, a table in a terminal."""

from __future__ import annotations

import gc
import io
import threading
from pathlib import Path

import pytest

from geonorm.introspect.progress import progress, without_bars
from geonorm.lab import Recipe, Store
from geonorm.lab.bars import busy, downloading
from geonorm.lab.progress import Lines, LiveTable, Watcher, shown
from geonorm.lab.recipe import Run
from geonorm.lab.store import Epoch, StoreError

RUNS = Recipe(norms=("bn", "ln"), seeds=(0, 1), epochs=10).runs()
FIGURES = {"loss": 0.25, "accuracy": 0.75}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One run is done, one is at half, two wait."""
    store = Store(tmp_path / "r.sqlite")
    for run in RUNS:
        store.add(run.choices)
    finish(store, 0)
    store.claim(RUNS[1].key)
    store.epochs(RUNS[1].key, [Epoch(n, FIGURES, 0.1) for n in range(1, 6)])
    return store


def finish(store: Store, number: int) -> None:
    key = RUNS[number].key
    store.claim(key)
    store.epochs(key, [Epoch(n, FIGURES, 0.5) for n in range(1, 11)])
    store.finish(key, {"clean": {"accuracy": 0.75}}, 5.0)


def test_a_watcher_sees_what_is_done_and_what_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    watcher = Watcher(RUNS, store)
    view = watcher.look()
    assert (view.number, view.done, view.finished, view.left) == (4, 1, [], None)
    ((name, run, standing),) = view.running
    assert name == "ln, seed 0", "what does not differ is not said"
    assert (run.key, standing.epoch, standing.figures) == (RUNS[1].key, 5, FIGURES)
    clock[0] += 9.5  # it counts from half a second before the first look that saw something
    finish(store, 2)
    view = watcher.look()
    assert (view.done, [name for name, _, _ in view.finished]) == (2, ["bn, seed 1"])
    assert view.left == pytest.approx(10 * 15 / 10), "ten epochs in ten seconds, fifteen to go"
    assert not watcher.look().finished, "a run ends once"


def test_lines(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with shown(RUNS, store):
        finish(store, 1)
        finish(store, 2)
    said = capsys.readouterr()
    assert not said.out
    lines = said.err.splitlines()
    assert lines[0] == "[2/4] ln, seed 0: 75.0 % in 3.0 s"
    assert lines[1].startswith("[3/4] bn, seed 1: 75.0 % in 5.0 s, ")
    assert lines[1].endswith(" left")
    assert len(lines) == 2


def test_the_table_is_drawn(store: Store) -> None:
    from rich.console import Console
    from rich.live import Live

    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=90, color_system=None)
    watcher = Watcher(RUNS, store)
    finish(store, 3)
    with Live(console=terminal, auto_refresh=False) as live:
        LiveTable(live).show(watcher.look())
    drawn = screen.getvalue().splitlines()
    assert [head in drawn[0] for head in ("run", "epoch", "loss", "accuracy", "left")] == [True] * 5
    assert drawn[1].split() == ["ln,", "seed", "1", "10/10", "0.25", "75.0", "%", "done"]
    assert drawn[2].split() == ["ln,", "seed", "0", "5/10", "0.25", "75.0", "%", "0.5", "s"]
    assert any("2/4 runs" in line for line in drawn[3:])


def test_names_are_no_markup(tmp_path: Path) -> None:
    from rich.console import Console
    from rich.live import Live

    runs = [Run({**run.choices, "norm": "augbn[bold]"}) for run in RUNS[:1]]
    store = Store(tmp_path / "r.sqlite")
    for run in runs:
        store.add(run.choices)
        store.claim(run.key)
    screen = io.StringIO()
    with Live(console=Console(file=screen, force_terminal=True, width=90), auto_refresh=False) as live:
        LiveTable(live).show(Watcher(runs, store).look())
    assert "augbn[bold]" in screen.getvalue()


def test_lines_count_on(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher(RUNS, store)
    for number in (1, 2, 3):
        finish(store, number)
        Lines().show(watcher.look())
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["[2/4]", "[3/4]", "[4/4]"]


def test_a_store_that_cannot_be_read_for_a_while_is_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The watcher looks again, and tells of what was finished in the meantime."""
    read, refused, looked_again = Store.finished_keys, threading.Event(), threading.Event()

    def locked(store: Store) -> set[str]:
        refused.set()
        raise StoreError("locked")

    def readable(store: Store) -> set[str]:
        looked_again.set()
        return read(store)

    monkeypatch.setattr("geonorm.lab.progress.LOOK_EVERY", 0.01)
    with shown(RUNS, store):
        monkeypatch.setattr(Store, "finished_keys", locked)
        finish(store, 1)
        assert refused.wait(30)
        monkeypatch.setattr(Store, "finished_keys", readable)
        assert looked_again.wait(30), "the watcher has ended"
    assert capsys.readouterr().err.startswith("[2/4] ln, seed 0: 75.0 % in ")


def test_a_store_that_cannot_be_read_at_the_end_is_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def locked(store: Store) -> set[str]:
        asked.append(store)
        raise StoreError("locked")

    with shown(RUNS, store):
        monkeypatch.setattr(Store, "finished_keys", locked)
        finish(store, 1)
    assert asked
    assert capsys.readouterr().err == ""


def test_busy_says_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with busy("counting") as say:
        say("one")
    assert capsys.readouterr() == ("", "one\n")


def test_nobody_can_look(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A stderr that is closed: nothing is said, and nothing goes to stdout instead."""
    monkeypatch.setattr("sys.stderr", None)
    with busy("counting") as say:
        say("one")
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_a_bar_on_a_terminal_and_not_inside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("geonorm.introspect.progress.DELAY", 0.0)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert list(progress([1, 2], "work")) == [1, 2]
    assert "work" in terminal.getvalue()
    monkeypatch.setattr("sys.stderr", inside := Terminal())
    with without_bars():
        assert list(progress([1, 2], "work")) == [1, 2]
    assert inside.getvalue() == ""


def test_bars_in_each_other_and_bars_that_are_left_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich may refuse a second display; the work goes on, and the terminal is left with its cursor."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("geonorm.introspect.progress.DELAY", 0.0)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert [[*progress("ab", "inner")] for _ in progress([1, 2], "outer")] == [["a", "b"]] * 2
    for item in progress(range(9), "work"):
        if item == 3:
            break
    del item
    gc.collect()
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") > 0


def test_a_download_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with downloading("digits", 2_000_000) as advance:
        advance(1_000_000)
    assert "downloading digits" in terminal.getvalue()
    assert "1.0/2.0 MB" in terminal.getvalue()
