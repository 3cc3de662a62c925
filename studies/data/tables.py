"""Tables in text files, plain or compressed with xz."""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from geonorm.lab.data.errors import DataError

T = TypeVar("T")


def read_rows(path: Path) -> list[list[str]]:
    """The rows of a comma-separated file, without spaces around cells and without empty rows."""
    try:
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        # splitlines would also split comments at characters such as U+2028.
        lines = io.StringIO(content.decode("utf-8"), newline="")
        rows = list(csv.reader(lines, skipinitialspace=True, strict=True))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: fetch it again") from error
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, csv.Error, OSError) as error:
        raise DataError(f"{path} is damaged, truncated or not a table ({error}): fetch it again") from error
    return [[cell.strip() for cell in row] for row in rows if row]


def column(path: Path, rows: list[list[str]], name: str, convert: Callable[[str], T]) -> list[T]:
    """The first column with this name in the first row, converted."""
    if not rows or name not in rows[0]:
        raise DataError(
            f"{path} has no column {name!r} (it has {', '.join(rows[0][:8] if rows else [])}, ...): a different file"
        )
    place, found = rows[0].index(name), []
    for number, row in enumerate(rows[1:], 2):
        try:
            found.append(convert(row[place]))
        except (IndexError, ValueError, KeyError) as error:
            got = row[place] if place < len(row) else "nothing"
            raise DataError(
                f"{path}, row {number}: {got!r} is not a valid {name}: damaged or truncated, fetch it again"
            ) from error
    return found


def one_of(*allowed: str) -> Callable[[str], str]:
    """A converter that accepts only some words."""

    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return convert


def check_length(path: Path, found: Sequence[object], expected: int) -> None:
    """Raise unless a table has all its rows."""
    if len(found) != expected:
        raise DataError(
            f"{path} has {len(found)} samples, expected {expected}: truncated or a different file; fetch it again"
        )
