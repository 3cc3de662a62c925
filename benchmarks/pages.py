"""Replacing text between the marks of a page, ``<!-- name -->`` and ``<!-- end -->``."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->\n"


def put(page: Path, mark: str, text: str) -> None:
    """Replace the text between a mark and the next end; raises unless the page has both."""
    start = f"<!-- {mark} -->\n"
    head, found, rest = page.read_text(encoding="utf-8").partition(start)
    _, end, tail = rest.partition(END)
    if not found or not end:
        raise ValueError(
            f"expected {start.strip()} and {END.strip()} in {page} (got {'no end' if found else 'no such mark'})"
        )
    page.write_text(head + start + text + END + tail, encoding="utf-8")
