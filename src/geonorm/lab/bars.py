"""A moving bar on the terminal for work whose length is not known; nothing where nobody looks."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .extras import require


def is_watched() -> bool:
    """Whether progress can be drawn: stderr is a terminal that allows it, and rich is there to draw on it."""
    if sys.stderr is None or not sys.stderr.isatty():  # none if whoever started this has closed it
        return False
    return importlib.util.find_spec("rich") is not None and not console().is_dumb_terminal


def console() -> Any:
    """The terminal that progress is drawn on; stdout is left to results."""
    return require("rich.console", "rich").Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Print a line on stderr, for whoever looks; the work goes on when nobody does any more."""
    if sys.stderr is None:  # print would take stdout instead
        return
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """A bar while the body works; gives a function that prints a line on stderr, above the bar.

    Args:
        what: is being done.

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
        yield lambda line: bar.console.print(line, markup=False)
