"""A progress bar on the terminal for long work, if rich is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
DELAY = 5.0  # seconds: shorter work needs no bar
_shown: ContextVar[bool] = ContextVar("shown", default=True)


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a bar on stderr after five seconds, if that is a terminal."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None if the parent process has closed it
    if _shown.get() and is_terminal and importlib.util.find_spec("rich") is not None:
        return _with_bar(items, what)
    return iter(items)


def _with_bar(items: Iterable[T], what: str) -> Iterator[T]:
    from rich.console import Console
    from rich.errors import LiveError
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=False)
    task = bar.add_task(what, total=len(items) if isinstance(items, Sized) else None)
    start_at, is_tried = time.monotonic() + DELAY, False
    try:
        for item in items:
            yield item
            bar.advance(task)
            if not is_tried and time.monotonic() >= start_at:
                is_tried = True
                with contextlib.suppress(LiveError):  # the caller has a display of its own, or work is nested
                    bar.start()
    finally:
        bar.stop()


@contextmanager
def without_bars() -> Iterator[None]:
    """A context without bars, for callers that show their own progress."""
    before = _shown.set(False)
    try:
        yield
    finally:
        _shown.reset(before)
