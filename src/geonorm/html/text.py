"""Tables as text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a text table with columns as wide as necessary; empty columns are left out."""
    columns = [c for c in range(len(head)) if any(row[c] for row in rows)]
    cells = [[str(row[c]) for c in columns] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
