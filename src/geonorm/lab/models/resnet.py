"""The CIFAR ResNets of He et al. (2016): three stages of basic blocks, 6n + 2 layers."""

from __future__ import annotations

from torch import Tensor, nn

from .parts import MakeNorm, make_activation, norm_maker, scaled


class _Block(nn.Module):
    """Two 3×3 convolutions and a shortcut, which subsamples pixels and pads channels where the shape changes."""

    def __init__(self, width_in: int, width: int, stride: int, norm: MakeNorm, activation: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = norm(width)
        self.activation = make_activation(activation)
        self.stride, self.added = stride, width - width_in

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.stride != 1 or self.added:
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        out: Tensor = self.activation(y + x)
        return out


class CifarResNet(nn.Module):
    """A ResNet for 32×32 images with any normalization.

    Args:
        blocks: basic blocks per stage; 3 make ResNet-20.
        norm: a spec, see ``geonorm.norms()``, or a callable from channels to a layer.
        classes: number of outputs.
        width: channels of the first stage; the second and third have twice and four times as many.
        activation: by name.
        channels: of the images.

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import CifarResNet
        >>> CifarResNet(1, "augbn(phi=1.5)", width=8)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        blocks: int,
        norm: str | MakeNorm = "bn",
        classes: int = 10,
        width: int = 16,
        activation: str = "relu",
        channels: int = 3,
    ) -> None:
        super().__init__()
        make = norm_maker(norm)
        self.conv = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = make(width)
        self.activation = make_activation(activation)
        stages = []
        for stage in range(3):
            for block in range(blocks):
                first = stage > 0 and block == 0
                wide = width << stage
                stages.append(_Block(wide // 2 if first else wide, wide, 2 if first else 1, make, activation))
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(width << 2, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        x = self.blocks(self.activation(self.norm(self.conv(x))))
        scores: Tensor = self.head(x.mean((2, 3)))
        return scores


def resnet20(
    norm: str | MakeNorm = "bn",
    classes: int = 10,
    activation: str = "relu",
    channels: int = 3,
    width: float = 1.0,
    depth: float = 1.0,
) -> CifarResNet:
    """ResNet-20: 0.27 million parameters, 3×3 stem, shortcuts without parameters."""
    return CifarResNet(scaled(3, depth), norm, classes, scaled(16, width), activation, channels)
