"""geonorm: geometric normalization for PyTorch."""

from . import functional, nn
from ._version import __version__
from .nn import (
    AugBatchNorm1d,
    AugBatchNorm2d,
    AugBatchNorm3d,
    AugGraphNorm,
    AugGroupNorm,
    AugInstanceNorm1d,
    AugInstanceNorm2d,
    AugInstanceNorm3d,
    AugLayerNorm,
)

__all__ = [
    "AugBatchNorm1d",
    "AugBatchNorm2d",
    "AugBatchNorm3d",
    "AugGraphNorm",
    "AugGroupNorm",
    "AugInstanceNorm1d",
    "AugInstanceNorm2d",
    "AugInstanceNorm3d",
    "AugLayerNorm",
    "__version__",
    "functional",
    "nn",
]
