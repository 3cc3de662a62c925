"""Weight growth: a monitor of a training run, and its log."""

from .log import Growth
from .monitor import Monitor

__all__ = ["Growth", "Monitor"]
