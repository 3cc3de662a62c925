"""Progress of runs: a live table in a terminal, a line per finished run elsewhere.

It is read from the store, so it is the same for one process, several, and a cluster.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ..html.text import visible
from .bars import console, is_watched, say
from .extras import require
from .recipe import AXES, Run
from .store import RunProgress, Store, StoreError

LOOK_EVERY = 0.5  # seconds
_SHOWN = 8  # runs in the live table, in addition to the running ones


class View(NamedTuple):
    """The progress at one moment.

    Attributes:
        number: number of runs.
        done: number of finished runs.
        running: the running ones, and how far they are.
        finished: those that finished since the last look.
        left: estimated seconds until all are done; None while there is nothing to estimate from.
    """

    number: int
    done: int
    running: list[tuple[str, Run, RunProgress]]
    finished: list[tuple[str, Run, RunProgress]]
    left: float | None


class Watcher:
    """Polls the store for the progress of some runs.

    Args:
        runs: the runs.
        store: their store.
    """

    def __init__(self, runs: Sequence[Run], store: Store) -> None:
        self.store = store
        self.runs = {run.key: run for run in runs}
        differs = [name for name in AXES if len({run[name] for run in runs}) > 1]
        self.names = {key: _name(run, differs) for key, run in self.runs.items()}
        self.done = store.finished_keys() & self.runs.keys()
        self.epochs = {key: store.standing(key).epoch for key in self.runs.keys() - self.done}
        self.to_do = self._to_do()
        self.start: float | None = None

    def look(self) -> View:
        """The current progress."""
        done = self.store.finished_keys() & self.runs.keys()
        claimed = self.store.running() - done
        finished = [self._row(key) for key in self.runs if key in done - self.done]
        running = [self._row(key) for key in self.runs if key in claimed]
        self.done = done
        self.epochs |= {run.key: standing.epoch for _, run, standing in [*finished, *running]}
        if self.start is None and (finished or running):  # before that, workers are only starting
            self.start = time.monotonic() - LOOK_EVERY
        to_do = self._to_do()
        gone = self.to_do - to_do
        left = (time.monotonic() - self.start) * to_do / gone if self.start is not None and gone else None
        return View(len(self.runs), len(done), running, finished, left)

    def _to_do(self) -> int:
        """The number of epochs left in all runs; runs in evaluation have none."""
        return sum(self.runs[key]["epochs"] - epoch for key, epoch in self.epochs.items())

    def _row(self, key: str) -> tuple[str, Run, RunProgress]:
        return self.names[key], self.runs[key], self.store.standing(key)


class Display(Protocol):
    """Shows views."""

    def show(self, view: View) -> None:
        """Show a view, replacing the last one."""


class Lines:
    """Prints a line for every finished run."""

    def show(self, view: View) -> None:
        count = view.done - len(view.finished)
        for name, _, standing in view.finished:
            count += 1
            left = f", {clock(view.left)} left" if view.left and count == view.done < view.number else ""
            say(f"[{count}/{view.number}] {name}: {_accuracy(standing)} in {clock(standing.seconds)}{left}")


class LiveTable:
    """Shows the running and the last finished runs, and a bar for all of them."""

    def __init__(self, live: Any) -> None:
        self.live = live
        self.last: list[tuple[str, Run, RunProgress]] = []

    def show(self, view: View) -> None:
        self.last = [*self.last, *view.finished][-_SHOWN:]
        text = require("rich.text", "rich").Text
        table = require("rich.table", "rich").Table(box=None, pad_edge=False)
        for head in ("run", "epoch", "loss", "accuracy", "left"):
            table.add_column(head, justify="left" if head == "run" else "right", style=None, no_wrap=head != "run")
        for rows, style in ((self.last, "dim"), (view.running, "")):
            for name, run, standing in rows:
                pace = standing.seconds / standing.epoch if standing.epoch else None
                left = "done" if style else clock(pace and pace * (run["epochs"] - standing.epoch))
                cells = (name, f"{standing.epoch}/{run['epochs']}", _loss(standing), _accuracy(standing), left)
                table.add_row(*map(text, cells), style=style)
        bar = require("rich.progress_bar", "rich").ProgressBar(view.number, view.done, width=40)
        counted = text(f"{view.done}/{view.number} runs  {clock(view.left)} left")
        columns = require("rich.columns", "rich").Columns([bar, counted])
        above = table if table.rows else text("starting ...")
        self.live.update(require("rich.console", "rich").Group(above, text(""), columns), refresh=True)


@contextlib.contextmanager
def shown(runs: Sequence[Run], store: Store) -> Iterator[None]:
    """Show on stderr the progress of runs while the body executes them.

    Args:
        runs: the runs.
        store: their store.
    """
    watcher, over = Watcher(runs, store), threading.Event()
    with _display() as display:

        def watch() -> None:
            while not over.wait(LOOK_EVERY):
                with contextlib.suppress(StoreError):  # the process that executes the runs will raise it
                    display.show(watcher.look())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(StoreError):
                display.show(watcher.look())


@contextlib.contextmanager
def _display() -> Iterator[Display]:
    if not is_watched():
        yield Lines()
        return
    live = require("rich.live", "rich").Live(
        console=console(), auto_refresh=False, transient=True, redirect_stdout=False
    )
    with live:
        yield LiveTable(live)


def clock(seconds: float | None) -> str:
    """Seconds in a readable form.

    Examples:
        >>> from geonorm.lab.progress import clock
        >>> clock(0.84), clock(75), clock(7384), clock(None)
        ('0.8 s', '1:15', '2:03:04', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _name(run: Run, differs: Sequence[str]) -> str:
    parts = [f"{name} {run[name]}" if name in ("seed", "fold") else run[name] for name in differs]
    return visible(", ".join(parts) or run["norm"])


def _loss(standing: RunProgress) -> str:
    loss = standing.figures.get("loss")
    return "" if loss is None else f"{loss:.3g}"


def _accuracy(standing: RunProgress) -> str:
    accuracy = standing.figures.get("accuracy")
    return "" if accuracy is None else f"{100 * accuracy:.1f} %"
