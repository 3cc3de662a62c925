"""BatchNorm around the joint center of the batch: one geometric median of whole samples for all channels at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geonorm.functional import joint_center_with_info

JOINT = "joint"  # its name among the norms of a study
_CLOSE = 1e-9  # of the largest distance: samples this near are in the center


class JointNorm(nn.Module):
    """BatchNorm with the geometric median of the batch's samples instead of the mean per channel.

        c = argmin Σ d_i                 y = γ (x − c)/√(σ² + ε) + β        σ² = mean (x − c)², per channel

    d_i is the distance of a whole sample from c, see ``geonorm.functional.joint_center``: a sample counts the same in
    all channels, while the per-channel median leaves out other samples in every channel. At the minimum
    c = Σ m_i/d_i / Σ 1/d_i with the samples' means m_i; that is how it is differentiated, with the distances fixed.

    Args:
        channels: number of channels.

    Examples:
        >>> import torch
        >>> from studies.models.joint import JointNorm
        >>> JointNorm(3)(torch.randn(8, 3)).shape
        torch.Size([8, 3])
    """

    running_center: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_center", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each channel, in training by the batch and in evaluation by running statistics."""
        shape = [1, -1, *[1] * (x.dim() - 2)]
        center, variance = self.running_center.view(shape), self.running_var.view(shape)
        if self.training:
            dims = [0, *range(2, x.dim())]
            center = _center(x).view(shape)
            variance = (x - center).square().mean(dims, keepdim=True)
            with torch.no_grad():
                self.running_center.lerp_(center.flatten(), 0.1)
                self.running_var.lerp_(variance.flatten(), 0.1)
        return (x - center) * (variance + 1e-5).rsqrt() * self.weight.view(shape) + self.bias.view(shape)


def _center(x: Tensor) -> Tensor:
    """The joint center per channel, differentiable in the means of the samples."""
    distance = joint_center_with_info(x).distance
    pull = 1 / distance.clamp_min(max(_CLOSE * float(distance.max()), torch.finfo(distance.dtype).tiny))
    means = x if x.dim() == 2 else x.flatten(2).mean(2)
    return ((pull / pull.sum()).to(x.dtype) @ means).to(x.dtype)
