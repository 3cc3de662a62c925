"""Normalizing groups over several processes: local computation, exchange, and decisions that all make alike."""

from .gradient import normalize_backward
from .normalize import normalize

__all__ = ["normalize", "normalize_backward"]
