"""The mathematics: pure, differentiable functions of tensors. No state, no mutation, no input or output."""

from ._center import CenterInfo, center, center_with_info
from ._segments import segment_center, segment_spread
from ._spread import spread

__all__ = ["CenterInfo", "center", "center_with_info", "segment_center", "segment_spread", "spread"]
