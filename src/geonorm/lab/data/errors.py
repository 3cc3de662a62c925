"""The error that all loaders raise."""

from __future__ import annotations


class DataError(ValueError):
    """Data are missing, damaged, incomplete or in another format; the message says which file, why, and what to do."""
