"""The report of a comparison: the answer first, then a page, tables and pictures of everything behind it."""

from .files import write
from .verdict_text import answer

__all__ = ["answer", "write"]
