"""Tables as text, and text that is safe to print, for terminals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_COLOURS = re.compile(r"(\x1b\[(?:0|1|1;3[1-4])m)")  # those of our own commands, which do no harm from elsewhere


def visible(text: str) -> str:
    r"""The text with characters that would control a terminal spelled out: names and messages are anybody's.

    An escape sequence can set the title, clear the screen or hide a line; a carriage return can overwrite one; and a
    mark for the direction of writing can reverse one.

    Examples:
        >>> from geonorm.html.text import visible
        >>> print(visible("norm \x1b[2J\rgood"))
        norm \x1b[2J\rgood
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    parts = _COLOURS.split(text)
    return "".join(part if i % 2 else "".join(map(_spelled, part)) for i, part in enumerate(parts))


def _spelled(character: str) -> str:
    plain = character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
    return character if plain else character.encode("unicode_escape").decode("ascii")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a text table with columns as wide as necessary; empty columns are left out."""
    columns = [c for c in range(len(head)) if any(row[c] for row in rows)]
    cells = [[visible(str(row[c])) for c in columns] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
