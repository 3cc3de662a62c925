"""A multilayer perceptron: linear layers with norms and activations between."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from .parts import MakeNorm, make_activation, norm_maker, scaled


class MLP(nn.Module):
    """Hidden layers of one width, each linear, norm, activation; then a linear head.

    Args:
        input_shape: of one sample; it is flattened.
        norm: a spec, see ``geonorm.norms()``, or a callable from features to a layer.
        classes: number of outputs.
        activation: by name.
        hidden: features of a hidden layer.
        layers: number of hidden layers.
        width, depth: factors on ``hidden`` and ``layers``.

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import MLP
        >>> MLP((1, 8, 8), "augbn(phi=1.5)", hidden=16)(torch.randn(4, 1, 8, 8)).shape
        torch.Size([4, 10])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        norm: str | MakeNorm = "bn",
        classes: int = 10,
        activation: str = "relu",
        hidden: int = 64,
        layers: int = 2,
        width: float = 1.0,
        depth: float = 1.0,
    ) -> None:
        super().__init__()
        make, wide = norm_maker(norm, dim=1), scaled(hidden, width)
        before, steps = math.prod(input_shape), list[nn.Module]()
        for _ in range(scaled(layers, depth)):
            steps += [nn.Linear(before, wide), make(wide), make_activation(activation)]
            before = wide
        self.layers = nn.Sequential(*steps)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch."""
        scores: Tensor = self.head(self.layers(x.flatten(1)))
        return scores
