"""The CPU backend: compiled kernels, called through ctypes."""

from .normalize import center, guarded_moments, normalize, normalize_backward, spread, statistics, why_not, wrote

__all__ = ["center", "guarded_moments", "normalize", "normalize_backward", "spread", "statistics", "why_not", "wrote"]
