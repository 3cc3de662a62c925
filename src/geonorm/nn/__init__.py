"""Layers: parameters, buffers and one functional call each."""

from ._base import AugOptions
from .batchnorm import AugBatchNorm1d, AugBatchNorm2d, AugBatchNorm3d
from .graphnorm import AugGraphNorm
from .groupnorm import AugGroupNorm
from .instancenorm import AugInstanceNorm1d, AugInstanceNorm2d, AugInstanceNorm3d
from .layernorm import AugLayerNorm

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
    "AugOptions",
]
