"""Weight growth: a monitor that watches a training, and what it logs."""

from .log import Growth
from .monitor import Monitor

__all__ = ["Growth", "Monitor"]
