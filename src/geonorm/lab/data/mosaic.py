"""CIFAR in the compact layout: tiles of 32×32 side by side in lossless WebP images, labels as .npy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..extras import require
from .arrays import read_array
from .errors import DataError
from .images import open_image

_TILE = 32
_AGAIN = "Fetch the folder again; all of its files are needed."


class Mosaics(NamedTuple):
    """One set in the compact layout.

    Attributes:
        train, test: files of images, in order; labels are in train_labels.npy and test_labels.npy.
        per_class: training and test samples of every class.
        classes: number of labels.
        mean: published mean of the training pixels per channel, in [0, 1]; checks all of them.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    per_class: tuple[int, int]
    classes: int
    mean: tuple[float, ...] | None


def read_mosaics(folder: Path, layout: Mosaics) -> tuple[Any, Any, Any, Any]:
    """Training pixels (uint8, NCHW) and labels, test pixels and labels."""
    numpy = require("numpy", "numpy")
    found = []
    for part, files, expected in zip(("train", "test"), (layout.train, layout.test), layout.per_class, strict=True):
        labels = _read_labels(folder / f"{part}_labels.npy")
        counts = numpy.bincount(labels, minlength=layout.classes)
        if len(counts) != layout.classes or (counts != expected).any():
            raise DataError(
                f"{folder / f'{part}_labels.npy'} is damaged: expected {expected} samples of each of {layout.classes} "
                f"classes (got {counts.min()} to {counts.max()} of {len(counts)}). {_AGAIN}"
            )
        pixels = numpy.concatenate([_read_tiles(folder / file) for file in files])
        if len(pixels) != len(labels):
            raise DataError(f"{folder} has {len(pixels)} {part} images and {len(labels)} labels. {_AGAIN}")
        found += [pixels, labels]
    if layout.mean is not None:
        mean = found[0].mean((0, 2, 3), dtype=numpy.float64) / 255
        if abs(mean - layout.mean).max() > 1e-9:
            raise DataError(
                f"training images in {folder} are damaged: their mean is {mean.tolist()}, expected {layout.mean}. "
                f"{_AGAIN}"
            )
    return found[0], found[1], found[2], found[3]


def _read_tiles(path: Path) -> Any:
    """The tiles of a mosaic, row by row, uint8, NCHW."""
    numpy = require("numpy", "numpy")
    pixels = numpy.asarray(open_image(path))
    height, width = pixels.shape[:2]
    if height % _TILE or width % _TILE:
        raise DataError(f"{path} is {width}×{height}, expected multiples of {_TILE}: it is a different file. {_AGAIN}")
    rows, columns = height // _TILE, width // _TILE
    tiles = pixels.reshape(rows, _TILE, columns, _TILE, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(rows * columns, 3, _TILE, _TILE)


def _read_labels(path: Path) -> Any:
    labels = read_array(path, _AGAIN)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"{path} holds {labels.dtype} of shape {labels.shape}, expected a list of labels. {_AGAIN}")
    return labels.astype("int64")


def read_names(path: Path, classes: int) -> Sequence[str]:
    """Names of classes, one per line."""
    try:
        names = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). {_AGAIN}") from error
    if len(names) != classes:
        raise DataError(f"{path} has {len(names)} names, expected {classes}. {_AGAIN}")
    return names
