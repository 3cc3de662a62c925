"""The mathematics: pure, differentiable functions of tensors. No state, no mutation, no I/O."""

from ..ops import NormStatistics
from ._aug import AugNorm, affine_norm, aug_norm
from ._center import CenterInfo, center, center_with_info
from ._guard import Guarded, guard
from ._joint import JointCenterInfo, joint_center, joint_center_with_info
from ._pop import pop_norm
from ._segments import segment_center, segment_spread
from ._spread import spread

__all__ = [
    "AugNorm",
    "CenterInfo",
    "Guarded",
    "JointCenterInfo",
    "NormStatistics",
    "affine_norm",
    "aug_norm",
    "center",
    "center_with_info",
    "guard",
    "joint_center",
    "joint_center_with_info",
    "pop_norm",
    "segment_center",
    "segment_spread",
    "spread",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
