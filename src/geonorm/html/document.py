"""Self-contained pages, without network or other files: the common frame, and sortable tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Cell(NamedTuple):
    """A cell of a sortable table.

    Attributes:
        html: its content, already escaped.
        key: the sort key: a number as text, or words; empty cells stay at the end.
        kind: a class of the style sheet: ``"number"``, ``"name"``, ``"long"``, or none.
    """

    html: str
    key: str
    kind: str = ""


def document(title: str, parts: Iterable[str], style: str = "", script: str = "") -> str:
    """A whole page as HTML.

    Args:
        title: plain text.
        parts: the page from top to bottom, as HTML; empty ones are skipped.
        style, script: added to the common style and script.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<title>{escape(title)}</title>\n'
        f"<style>\n{read('geonorm.html', 'document.css')}{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<script>\n{read('geonorm.html', 'document.js')}{script}</script>\n</body>\n</html>\n"
    )


def read(package: str, name: str) -> str:
    """The text of a file in a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def sortable(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table that is sorted by clicking on a column head."""
    numeric = [bool(rows) and all(row[c].kind == "number" for row in rows) for c in range(len(head))]
    heads = "".join(
        f'<th scope="col"{" class=number" if numeric[c] else ""}><button type="button">{escape(name)}</button></th>'
        for c, name in enumerate(head)
    )
    lines = ["".join(_html(cell) for cell in row) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _html(cell: Cell) -> str:
    kind = f" class={cell.kind}" if cell.kind else ""
    return f'<td{kind} data-value="{escape(cell.key)}">{cell.html}</td>'
