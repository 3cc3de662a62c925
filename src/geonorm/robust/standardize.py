"""Normalization of inputs as the first layer of a model, so that attacks and noise act on the original images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Standardize(nn.Module):
    """Subtract a mean and divide by a deviation, per channel.

        y = (x − mean) / std

    Put before a model that was trained on standardized inputs, ``nn.Sequential(Standardize(mean, std), model)``: then
    sizes of attacks and noise are in the units of the image, and images stay in [0, 1].

    Args:
        mean: per channel.
        std: per channel, above 0.

    Shape:
        - Input and output: ``(N, C, *)``.

    Examples:
        >>> import torch
        >>> from geonorm.robust import Standardize
        >>> Standardize([0.5], [0.25])(torch.ones(1, 1, 2))
        tensor([[[2., 2.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise ValueError(f"expected one mean and one std > 0 per channel (got mean={mean}, std={std})")
        # Numbers instead of buffers: they are constants of the data, take the input's dtype, and are in no checkpoint.
        self.mean, self.std = tuple(map(float, mean)), tuple(map(float, std))

    def forward(self, x: Tensor) -> Tensor:
        """The standardized input."""
        shape = [-1, *[1] * (x.dim() - 2)]
        return (x - x.new_tensor(self.mean).view(shape)) / x.new_tensor(self.std).view(shape)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"mean={self.mean}, std={self.std}"
