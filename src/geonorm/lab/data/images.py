"""Images in files, read on access."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..extras import require
from .errors import DataError

# Statistics of ImageNet's pixels, as used by torchvision's models and DORO's CelebA code: computing them for other
# images would mean reading all files.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageFiles:
    """Image files that can be indexed like a tensor: ``files[index]`` reads the images at the places in ``index``.

    The shorter side is scaled to ``size``, and the image is cropped at the center.

    Args:
        paths: of the images.
        size: height and width of the returned images.

    Examples:
        >>> from geonorm.lab.data import ImageFiles
        >>> ImageFiles(["a.jpg", "b.jpg"], 64).shape
        (2, 3, 64, 64)
    """

    def __init__(self, paths: Sequence[Path | str], size: int) -> None:
        self.paths, self.size = list(paths), size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the tensor of all images."""
        return (len(self.paths), 3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Tensor) -> Tensor:
        """Float32 in [0, 1], NCHW."""
        places = index.nonzero().flatten() if index.dtype == torch.bool else index.flatten()
        if not len(places):
            return torch.zeros(0, 3, self.size, self.size)
        return torch.stack([self._read(self.paths[i]) for i in places.tolist()])

    def take_samples(self, index: Tensor) -> ImageFiles:
        """The images at some places, still in their files."""
        return ImageFiles([self.paths[i] for i in index.tolist()], self.size)

    def _read(self, path: Path | str) -> Tensor:
        image = open_image(Path(path))
        scale = self.size / min(image.size)
        width, height = (max(self.size, round(side * scale)) for side in image.size)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        image = image.resize((width, height)).crop((left, top, left + self.size, top + self.size))
        return as_tensor(image)


def open_image(path: Path) -> Any:
    """A decoded RGB image (pillow)."""
    pillow = require("PIL.Image", "pillow")
    try:
        with pillow.open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: unpack the images again") from error
    # Pillow raises SyntaxError for a broken PNG. A flipped bit in the size can make an image impossibly large.
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise DataError(f"{path} is not an image, or is damaged ({error}): fetch it again") from error


def as_tensor(image: Any) -> Tensor:
    """An RGB image as float32 in [0, 1], CHW."""
    numpy = require("numpy", "numpy")
    pixels = torch.from_numpy(numpy.asarray(image).copy())
    return pixels.permute(2, 0, 1).float() / 255
