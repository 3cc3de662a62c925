"""What goes where: results, and nothing else, to stdout, in letters that it can show."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator


def show_what_can_be_shown() -> None:
    """A terminal or a file without φ or ± gets a question mark for it, not an error after the work is done."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def in_color() -> bool:
    """Whether stdout is a terminal, and nobody asked for plain text (https://no-color.org)."""
    return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """What functions of one's own print meanwhile goes to stderr, from here and from processes that are started."""
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started this
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
