"""Results in notebooks: small pieces of HTML that carry their style, for light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from .result import shown

_STYLE = (
    ".geonorm { overflow-x: auto; } "
    ".geonorm th, .geonorm td { text-align: left !important; vertical-align: top; } "
    ".geonorm .error { color: #d1242f; } .geonorm .warning { color: #b36b00; } "
    ".geonorm .note { color: #3b82c4; } .geonorm .good { color: #2da160; } .geonorm .soft { opacity: 0.7; }"
)


def frame(parts: Iterable[str], style: str = "") -> str:
    """The parts, as HTML, with the style of notebooks; empty ones are skipped."""
    inside = "".join(part for part in parts if part)
    return f'<div class="geonorm"><style>{_STYLE}{style}</style>{inside}</div>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text; ``kind`` is a class of the style."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], most: int = 50) -> str:
    """A table without its empty columns; of very many rows, the first.

    Examples:
        >>> from geonorm.html.notebook import table
        >>> table(["norm", "note"], [["bn", ""]])
        '<table><thead><tr><th>norm</th></tr></thead><tbody><tr><td>bn</td></tr></tbody></table>'
    """
    cells = [[shown(cell) for cell in row] for row in rows]
    columns = [c for c in range(len(head)) if any(row[c] for row in cells)]
    titles = "".join(f"<th>{escape(head[c])}</th>" for c in columns)
    lines = ["".join(f"<td>{escape(row[c])}</td>" for c in columns) for row in cells[:most]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = paragraph(f"... and {len(rows) - most:,} more", "soft") if len(rows) > most else ""
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>{more}"
