"""A progress bar for what takes long, if tqdm is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a bar on stderr from the fifth second on."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return iter(items)
    return iter(tqdm(items, desc=what, delay=5, leave=False))
