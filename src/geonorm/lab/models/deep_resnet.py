"""ResNet-18 and ResNet-101 of He et al. (2016): four stages, with the stem of CIFAR or of ImageNet."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .parts import MakeNorm, make_activation, norm_maker, scaled


class _Residual(nn.Module):
    """Convolutions with norms, and a shortcut around them, with a 1×1 convolution where the shape changes."""

    def __init__(
        self, widths: Sequence[int], kernels: Sequence[int], strides: Sequence[int], norm: MakeNorm, activation: str
    ) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for i, kernel in enumerate(kernels):
            if i:
                steps.append(make_activation(activation))
            steps.append(nn.Conv2d(widths[i], widths[i + 1], kernel, strides[i], kernel // 2, bias=False))
            steps.append(norm(widths[i + 1]))
        self.steps = nn.Sequential(*steps)
        stride = max(strides)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or widths[0] != widths[-1]:
            self.shortcut = nn.Sequential(nn.Conv2d(widths[0], widths[-1], 1, stride, bias=False), norm(widths[-1]))
        self.activation = make_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.steps(x) + self.shortcut(x))
        return out


def _stem(kind: str, channels: int, width: int, norm: MakeNorm, activation: str) -> nn.Sequential:
    if kind == "cifar":
        return nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), norm(width), make_activation(activation))
    if kind == "imagenet":
        return nn.Sequential(
            nn.Conv2d(channels, width, 7, 2, 3, bias=False),
            norm(width),
            make_activation(activation),
            nn.MaxPool2d(3, 2, 1),
        )
    raise ValueError(f"expected stem to be 'cifar' or 'imagenet' (got {kind!r})")


class DeepResNet(nn.Module):
    """A ResNet of four stages.

    Args:
        blocks: blocks per stage.
        bottleneck: blocks of 1×1, 3×3 and 1×1 convolutions with four times the channels, instead of two 3×3.
        norm: a spec, see ``geonorm.norms()``, or a callable from channels to a layer.
        activation: by name.
        classes, channels: of the output and of the images.
        width: channels of the first stage; each later one has twice as many.
        stem: ``"cifar"``, one 3×3 convolution (the definitions of kuangliu/pytorch-cifar), or ``"imagenet"``, a 7×7 of
            stride 2 followed by pooling (He et al., torchvision).

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import DeepResNet
        >>> DeepResNet((1, 1, 1, 1), width=8, classes=5)(torch.randn(2, 3, 16, 16)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        blocks: Sequence[int],
        bottleneck: bool = False,
        norm: str | MakeNorm = "bn",
        activation: str = "relu",
        classes: int = 10,
        channels: int = 3,
        width: int = 64,
        stem: str = "cifar",
    ) -> None:
        super().__init__()
        make = norm_maker(norm)
        self.stem = _stem(stem, channels, width, make, activation)
        stages, before = [], width
        for stage, number in enumerate(blocks):
            wide = width << stage
            after = 4 * wide if bottleneck else wide
            for block in range(number):
                stride = 2 if stage > 0 and block == 0 else 1
                if bottleneck:
                    layout = ((before, wide, wide, after), (1, 3, 1), (1, stride, 1))
                else:
                    layout = ((before, wide, wide), (3, 3), (stride, 1))  # type: ignore[assignment]
                stages.append(_Residual(*layout, make, activation))
                before = after
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return scores


def resnet18(
    norm: str | MakeNorm = "bn",
    classes: int = 10,
    activation: str = "relu",
    channels: int = 3,
    width: float = 1.0,
    depth: float = 1.0,
    stem: str = "cifar",
) -> DeepResNet:
    """ResNet-18: 11.2 million parameters; stem of CIFAR unless ``stem="imagenet"``."""
    blocks = [scaled(number, depth) for number in (2, 2, 2, 2)]
    return DeepResNet(blocks, False, norm, activation, classes, channels, scaled(64, width), stem)


def resnet101(
    norm: str | MakeNorm = "bn",
    classes: int = 10,
    activation: str = "relu",
    channels: int = 3,
    width: float = 1.0,
    depth: float = 1.0,
    stem: str = "cifar",
) -> DeepResNet:
    """ResNet-101: 42.5 million parameters, bottleneck blocks; stem of CIFAR unless ``stem="imagenet"``."""
    blocks = [scaled(number, depth) for number in (3, 4, 23, 3)]
    return DeepResNet(blocks, True, norm, activation, classes, channels, scaled(64, width), stem)
