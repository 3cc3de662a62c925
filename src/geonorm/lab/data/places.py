"""Where data are looked up: the folder that ``GEONORM_DATA`` names, then the cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .errors import DataError


def cache() -> Path:
    """The folder for downloads if ``GEONORM_DATA`` is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geonorm"


def folders() -> list[Path]:
    """The folders that are searched for data, in order."""
    named = os.environ.get("GEONORM_DATA")
    if not named:
        return [cache()]
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"GEONORM_DATA names {folder}, which is not a folder: create it, or unset the variable")
    return [folder, cache()]


def look(candidates: Sequence[str]) -> Path | None:
    """The first candidate that exists."""
    return next((path for folder in folders() for name in candidates if (path := folder / name).exists()), None)


def find(name: str, candidates: Sequence[str], how: str) -> Path:
    """The first candidate that exists; raises if there is none.

    Args:
        name: of the data, for the message.
        candidates: paths inside a data folder, files or folders.
        how: instructions for getting the data, for the message.
    """
    path = look(candidates)
    if path is None:
        where = " or ".join(str(folder) for folder in folders())
        raise DataError(
            f"{name} is not at hand: looked for {' or '.join(candidates)} in {where}. {how} "
            "Set GEONORM_DATA to the folder that holds it."
        )
    return path
