"""EfficientNet-B0 (Tan and Le, 2019) for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geonorm.lab.models.parts import MakeNorm, make_activation, norm_maker, scaled

# Expansion, channels, blocks, kernel, stride of the first block.
_STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)
_DROP_PATH, _DROPOUT = 0.2, 0.2


class _Squeeze(nn.Module):
    """Squeeze and excitation: channels weighted by a function of their means over the image."""

    def __init__(self, channels: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, hidden, 1)
        self.activation = make_activation(activation)
        self.expand = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.expand(self.activation(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(weight)


class _DropPath(nn.Module):
    """In training, whole samples set to zero at random and the rest scaled up."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        kept = torch.empty_like(x[:, :1, :1, :1]).bernoulli_(1 - self.rate)
        return x * kept / (1 - self.rate)


class _MBConv(nn.Module):
    """Widen, filter each channel, weight the channels, narrow; a shortcut where the shape stays."""

    def __init__(
        self,
        before: int,
        after: int,
        expansion: int,
        kernel: int,
        stride: int,
        drop: float,
        norm: MakeNorm,
        activation: str,
    ) -> None:
        super().__init__()
        wide = expansion * before
        steps: list[nn.Module] = []
        if expansion != 1:
            steps += [nn.Conv2d(before, wide, 1, bias=False), norm(wide), make_activation(activation)]
        steps += [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            norm(wide),
            make_activation(activation),
            _Squeeze(wide, max(1, before // 4), activation),
            nn.Conv2d(wide, after, 1, bias=False),
            norm(after),
        ]
        self.has_shortcut = stride == 1 and before == after
        if self.has_shortcut:
            steps.append(_DropPath(drop))
        self.steps = nn.Sequential(*steps)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.steps(x)
        return y + x if self.has_shortcut else y


class EfficientNetB0(nn.Module):
    """EfficientNet-B0: 3.6 million parameters.

    The definition of kuangliu/pytorch-cifar: stem of stride 1, no 1280-channel layer at the end. That code also creates
    a 1×1 convolution and a norm in the first block (1,088 parameters) that its forward never uses; they are left out.

    Args:
        norm: a spec, see ``geonorm.norms()``, or a callable from channels to a layer.
        classes: number of outputs.
        activation: by name.
        channels: of the images.
        width, depth: factors on channels and on blocks per stage.

    Examples:
        >>> import torch
        >>> from studies.models.efficientnet import EfficientNetB0
        >>> EfficientNetB0(width=0.2, depth=0.3)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        norm: str | MakeNorm = "bn",
        classes: int = 10,
        activation: str = "silu",
        channels: int = 3,
        width: float = 1.0,
        depth: float = 1.0,
    ) -> None:
        super().__init__()
        make = norm_maker(norm)
        before = scaled(32, width)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, before, 3, 1, 1, bias=False), make(before), make_activation(activation)
        )
        numbers = [scaled(number, depth) for _, _, number, _, _ in _STAGES]
        total, blocks = sum(numbers), list[nn.Module]()
        for (expansion, full, _, kernel, first), number in zip(_STAGES, numbers, strict=True):
            after = scaled(full, width)
            for block in range(number):
                drop = _DROP_PATH * len(blocks) / total  # deeper blocks are dropped more often
                stride = first if block == 0 else 1
                blocks.append(_MBConv(before, after, expansion, kernel, stride, drop, make, activation))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(_DROPOUT)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.head(self.dropout(self.blocks(self.stem(x)).mean((2, 3))))
        return scores
