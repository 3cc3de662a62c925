"""Checksums of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .errors import DataError


def check_md5(path: Path, expected: str, source: str) -> None:
    """Raise unless a file exists and has the expected checksum.

    Args:
        path: the file.
        expected: its MD5.
        source: who published that.
    """
    if not path.is_file():
        raise DataError(f"{path} is missing: unpack the archive again, all files of it are needed")
    checksum = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum.update(chunk)
    if checksum.hexdigest() != expected:
        raise DataError(
            f"{path} is damaged or a different file: its MD5 is {checksum.hexdigest()}, expected {expected} "
            f"({source}). Delete it and fetch it again."
        )
