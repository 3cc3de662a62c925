"""Layers: parameters, buffers and one functional call each; and the names by which they are known."""

# Torch's own, beside ours; not listed as names of geonorm.
from torch.nn.utils.parametrizations import spectral_norm as spectral_norm
from torch.nn.utils.parametrizations import weight_norm as weight_norm

from ._base import AugOptions
from ._pop import PopOptions
from .batchnorm import AugBatchNorm1d, AugBatchNorm2d, AugBatchNorm3d
from .graphnorm import AugGraphNorm
from .groupnorm import AugGroupNorm
from .instancenorm import AugInstanceNorm1d, AugInstanceNorm2d, AugInstanceNorm3d
from .layernorm import AugLayerNorm
from .popgroupnorm import PopGroupNorm
from .popinstancenorm import PopInstanceNorm1d, PopInstanceNorm2d, PopInstanceNorm3d
from .popnorm import PopNorm1d, PopNorm2d, PopNorm3d
from .specs import create_norm, norms, parse_spec
from .weightnorm import CenteredWeightNorm, WeightStandardization, centered_weight_norm, weight_standardization

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
    "CenteredWeightNorm",
    "PopGroupNorm",
    "PopInstanceNorm1d",
    "PopInstanceNorm2d",
    "PopInstanceNorm3d",
    "PopNorm1d",
    "PopNorm2d",
    "PopNorm3d",
    "PopOptions",
    "WeightStandardization",
    "centered_weight_norm",
    "create_norm",
    "norms",
    "parse_spec",
    "weight_standardization",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
