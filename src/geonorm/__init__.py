"""geonorm: geometric normalization for PyTorch."""

from . import functional
from ._version import __version__

__all__ = ["__version__", "functional"]
