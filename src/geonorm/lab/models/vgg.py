"""VGG-16 and VGG-19 (Simonyan and Zisserman, 2015) for small images: norms between, one linear layer at the end."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .parts import MakeNorm, make_activation, norm_maker, scaled

_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Stages of 3×3 convolutions, each followed by norm and activation, with pooling after every stage.

    The definition of kuangliu/pytorch-cifar: convolutions have biases, the classifier is one linear layer.

    Args:
        convolutions: per stage.
        norm: a spec, see ``geonorm.norms()``, or a callable from channels to a layer.
        activation: by name.
        classes, channels: of the output and of the images.
        width: factor on the channels.

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import VGG
        >>> VGG((1, 1, 1, 1, 1), "gn", width=0.1)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        convolutions: Sequence[int],
        norm: str | MakeNorm = "bn",
        activation: str = "relu",
        classes: int = 10,
        channels: int = 3,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        make = norm_maker(norm)
        layers: list[nn.Module] = []
        before = channels
        for number, full in zip(convolutions, _WIDTHS, strict=True):
            wide = scaled(full, width)
            for _ in range(number):
                layers += [nn.Conv2d(before, wide, 3, 1, 1), make(wide), make_activation(activation)]
                before = wide
            # Rounding up changes nothing at 32×32, and allows images of 8×8.
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.head(self.features(x).mean((2, 3)))
        return scores


def vgg16(
    norm: str | MakeNorm = "bn",
    classes: int = 10,
    activation: str = "relu",
    channels: int = 3,
    width: float = 1.0,
    depth: float = 1.0,
) -> VGG:
    """VGG-16: 14.7 million parameters."""
    return VGG([scaled(n, depth) for n in (2, 2, 3, 3, 3)], norm, activation, classes, channels, width)


def vgg19(
    norm: str | MakeNorm = "bn",
    classes: int = 10,
    activation: str = "relu",
    channels: int = 3,
    width: float = 1.0,
    depth: float = 1.0,
) -> VGG:
    """VGG-19: 20.0 million parameters."""
    return VGG([scaled(n, depth) for n in (2, 2, 4, 4, 4)], norm, activation, classes, channels, width)
