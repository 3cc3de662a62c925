"""The one error of the loaders."""

from __future__ import annotations


class DataError(ValueError):
    """Data that are missing, damaged, incomplete or of another format: which file, what is wrong, what to do."""
