"""MobileNet-V2 (Sandler et al., 2018) for small images."""

from __future__ import annotations

from torch import Tensor, nn

from geonorm.lab.models.parts import MakeNorm, make_activation, norm_maker, scaled

# Expansion, channels, blocks, stride of the first block. Strides as in kuangliu/pytorch-cifar: 1 up to 24 channels.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class _InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; a shortcut wherever the size of the image stays."""

    def __init__(self, before: int, after: int, expansion: int, stride: int, norm: MakeNorm, activation: str) -> None:
        super().__init__()
        wide = expansion * before
        self.steps = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False),
            norm(wide),
            make_activation(activation),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            norm(wide),
            make_activation(activation),
            nn.Conv2d(wide, after, 1, bias=False),
            norm(after),
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            same = before == after
            self.shortcut = (
                nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, bias=False), norm(after))
            )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.steps(x)
        return y if self.shortcut is None else y + self.shortcut(x)


class MobileNetV2(nn.Module):
    """MobileNet-V2: 2.3 million parameters.

    The definition of kuangliu/pytorch-cifar: stem of stride 1, shortcuts with a convolution where channels change.

    Args:
        norm: a spec, see ``geonorm.norms()``, or a callable from channels to a layer.
        classes: number of outputs.
        activation: by name.
        channels: of the images.
        width, depth: factors on channels and on blocks per stage.

    Examples:
        >>> import torch
        >>> from studies.models.mobilenet import MobileNetV2
        >>> MobileNetV2(width=0.1, depth=0.3)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        norm: str | MakeNorm = "bn",
        classes: int = 10,
        activation: str = "relu",
        channels: int = 3,
        width: float = 1.0,
        depth: float = 1.0,
    ) -> None:
        super().__init__()
        make = norm_maker(norm)
        before, last = scaled(32, width), scaled(1280, width)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, before, 3, 1, 1, bias=False), make(before), make_activation(activation)
        )
        blocks = []
        for expansion, full, number, first in _STAGES:
            after = scaled(full, width)
            for block in range(scaled(number, depth)):
                stride = first if block == 0 else 1
                blocks.append(_InvertedResidual(before, after, expansion, stride, make, activation))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(nn.Conv2d(before, last, 1, bias=False), make(last), make_activation(activation))
        self.head = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.head(self.last(self.blocks(self.stem(x))).mean((2, 3)))
        return scores
