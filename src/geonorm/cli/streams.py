"""Output streams: only results go to stdout, in characters that it can encode."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator


def replace_unencodable() -> None:
    """Write a question mark for φ or ± where the encoding has none, instead of failing after the work is done."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """Redirect what the user's functions print to stderr, in this process and in those it starts."""
    if sys.stdout is None or sys.stderr is None:  # closed by the parent process
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
