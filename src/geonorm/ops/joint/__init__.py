"""Normalizing groups over several processes: what each finds out by itself, what travels, and what all decide alike."""

from .gradient import normalize_backward
from .normalize import normalize

__all__ = ["normalize", "normalize_backward"]
