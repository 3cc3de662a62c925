"""The report of a comparison: a short answer, a page, tables and pictures."""

from .files import write
from .verdict_text import answer

__all__ = ["answer", "write"]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
