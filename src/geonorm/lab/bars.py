"""Bars on the terminal, for work of unknown length and for downloads; nothing if stderr is not a terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..html.text import visible
from .extras import require


def is_watched() -> bool:
    """Whether progress can be drawn: stderr is a suitable terminal, and rich is installed."""
    if sys.stderr is None or not sys.stderr.isatty():  # None if the parent process has closed it
        return False
    return importlib.util.find_spec("rich") is not None and not console().is_dumb_terminal


def console() -> Any:
    """The terminal that progress is drawn on: stderr, because stdout is for results."""
    return require("rich.console", "rich").Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Print a line on stderr; if that is closed, the work continues without it."""
    if sys.stderr is None:  # print would write to stdout instead
        return
    with contextlib.suppress(BrokenPipeError):
        print(visible(line), file=sys.stderr, flush=True)


@contextlib.contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """Show a bar while the body runs; yields a function that prints a line on stderr, above the bar.

    Args:
        what: the work, as the label of the bar.

    Examples:
        >>> from geonorm.lab.bars import busy
        >>> with busy("counting"):
        ...     sum(range(10))
        45
    """
    if not is_watched():
        yield say
        return
    rich = require("rich.progress", "rich")
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=console(), transient=True, redirect_stdout=False) as bar:
        bar.add_task(what, total=None)
        yield lambda line: bar.console.print(visible(line), markup=False)


@contextlib.contextmanager
def downloading(what: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show how much of a download has come; yields a function that takes the number of further bytes.

    Args:
        what: the label of the bar.
        length: bytes in all; 0 if the server does not say.
    """
    if not is_watched():
        yield lambda number: None
        return
    rich = require("rich.progress", "rich")
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console(), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(f"downloading {what}", total=length or None)
        yield lambda number: bar.advance(task, number)
