"""Ctrl-C while processes are started: none is lost, and none tears a new process out of its imports."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C waits until the body is through; in processes that it starts, until they ``listen``.

    Examples:
        >>> import signal
        >>> from geonorm.lab.interrupts import held_back
        >>> try:
        ...     with held_back():
        ...         signal.raise_signal(signal.SIGINT)
        ...         print("through")
        ... except KeyboardInterrupt:
        ...     print("stopped")
        through
        stopped
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield  # only the main thread is interrupted, and may change what happens then
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what new processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def listen() -> None:
    """In a process that was started while Ctrl-C was held back: from here on it is heard."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
