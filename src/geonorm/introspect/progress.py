"""A progress bar for long work, if tqdm is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
_shown: ContextVar[bool] = ContextVar("shown", default=True)


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a bar on stderr after five seconds."""
    if not _shown.get():
        return iter(items)
    try:
        from tqdm import tqdm  # tqdm.auto warns in notebooks without ipywidgets
    except ImportError:
        return iter(items)
    return iter(tqdm(items, desc=what, delay=5, leave=False))


@contextmanager
def without_bars() -> Iterator[None]:
    """A context without bars, for callers that show their own progress."""
    before = _shown.set(False)
    try:
        yield
    finally:
        _shown.reset(before)
