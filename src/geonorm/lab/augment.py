"""Random augmentation of training images: mirrored, shifted, or enlarged and cropped."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_SHIFT = 4  # pixels at most, as usual for images of 32×32


def flip(x: Tensor) -> Tensor:
    """Each image mirrored left to right with probability 1/2."""
    mirrored = torch.rand(len(x), 1, 1, 1) < 0.5
    return torch.where(mirrored, x.flip(-1), x)


def crop(x: Tensor) -> Tensor:
    """Each image shifted by up to 4 pixels in both directions; pixels from outside are 0."""
    height, width = x.shape[-2:]
    padded = nn.functional.pad(x, [_SHIFT] * 4)
    down, right = torch.randint(0, 2 * _SHIFT + 1, (2, len(x), 1, 1, 1))
    return _cut(padded, down, right, height, width)


def window(x: Tensor) -> Tensor:
    """Each image enlarged by 8/7, as from 224 to 256 pixels, and a random window of its former size cut out."""
    height, width = x.shape[-2:]
    larger = nn.functional.interpolate(x, size=(height * 8 // 7, width * 8 // 7), mode="bilinear", align_corners=False)
    down, right = (torch.randint(0, size // 7 + 1, (len(x), 1, 1, 1)) for size in (height, width))
    return _cut(larger, down, right, height, width)


def _cut(x: Tensor, down: Tensor, right: Tensor, height: int, width: int) -> Tensor:
    """A window of each image that starts this many pixels down and to the right."""
    rows, columns = down + torch.arange(height).view(-1, 1), right + torch.arange(width)
    return x[torch.arange(len(x)).view(-1, 1, 1, 1), torch.arange(x.shape[1]).view(-1, 1, 1), rows, columns]


AUGMENTS: dict[str, Callable[[Tensor], Tensor]] = {"flip": flip, "crop": crop, "window": window}
