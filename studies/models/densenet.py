"""DenseNet-121 (Huang et al., 2017) for small images: a layer gets the outputs of all earlier ones in its stage."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geonorm.lab.models.parts import MakeNorm, make_activation, norm_maker, scaled

_BLOCKS = (6, 12, 24, 16)


class _DenseLayer(nn.Module):
    """A 1×1 and a 3×3 convolution, each after a norm and an activation; the output is appended to the input."""

    def __init__(self, before: int, growth: int, norm: MakeNorm, activation: str) -> None:
        super().__init__()
        self.steps = nn.Sequential(
            norm(before),
            make_activation(activation),
            nn.Conv2d(before, 4 * growth, 1, bias=False),
            norm(4 * growth),
            make_activation(activation),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.steps(x), x], 1)


class DenseNet121(nn.Module):
    """DenseNet-121 with growth 32: 7.0 million parameters.

    The definition of kuangliu/pytorch-cifar: one 3×3 convolution of stride 1 as stem, compression by half.

    Args:
        norm: a spec, see ``geonorm.norms()``, or a callable from channels to a layer.
        classes: number of outputs.
        activation: by name.
        channels: of the images.
        width, depth: factors on the growth and on layers per stage.

    Examples:
        >>> import torch
        >>> from studies.models.densenet import DenseNet121
        >>> DenseNet121(width=0.1, depth=0.1)(torch.randn(2, 3, 32, 32)).shape
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
        growth = scaled(32, width)
        wide = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(channels, wide, 3, 1, 1, bias=False)]
        for stage, number in enumerate(_BLOCKS):
            for _ in range(scaled(number, depth)):
                layers.append(_DenseLayer(wide, growth, make, activation))
                wide += growth
            layers += [make(wide), make_activation(activation)]
            if stage + 1 < len(_BLOCKS):
                layers += [nn.Conv2d(wide, wide // 2, 1, bias=False), nn.AvgPool2d(2)]
                wide //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(wide, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.head(self.features(x).mean((2, 3)))
        return scores
