"""Arrays of numbers in .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..extras import require
from .errors import DataError


def read_array(path: Path, again: str, memory_map: bool = False) -> Any:
    """Read an .npy file. A file with Python objects is refused, because reading those would run code.

    Args:
        path: the file.
        again: how to get it, for the message.
        memory_map: leave the content on disk until it is used.
    """
    numpy = require("numpy", "numpy")
    try:
        found = numpy.load(path, allow_pickle=False, mmap_mode="r" if memory_map else None)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. {again}") from error
    except Exception as error:  # the header is parsed as Python: a damaged one can raise anything
        raise DataError(f"{path} is not an .npy file of numbers, or is damaged ({error}). {again}") from error
    if not isinstance(found, numpy.ndarray):
        found.close()
        raise DataError(f"{path} is an archive of arrays, expected one array. {again}")
    return found
