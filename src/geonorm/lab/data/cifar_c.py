"""CIFAR-10-C (Hendrycks and Dietterich, 2019): the official corrupted test images, as .npy files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .arrays import read_array
from .cifar import cifar
from .download import ARCHIVES, fetch
from .errors import DataError
from .places import find, folders, look
from .task import Split, Task, drawn

PLACES = ("CIFAR-10-C/labels.npy", "cifar10c/labels.npy")
CORRUPTIONS = (
    "brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost", "gaussian_blur", "gaussian_noise",
    "glass_blur", "impulse_noise", "jpeg_compression", "motion_blur", "pixelate", "saturate", "shot_noise", "snow",
    "spatter", "speckle_noise", "zoom_blur",
)  # fmt: skip
PER_SEVERITY = 10000
HOW = (
    f"geonorm data fetch cifar10c, or load('cifar10c', download=True), fetches {ARCHIVES['cifar10c'].url} "
    f"(MD5 {ARCHIVES['cifar10c'].digest}, {ARCHIVES['cifar10c'].source}; 2.9 GB)."
)
_AGAIN = "Unpack CIFAR-10-C.tar again."


def cifar10c(
    corruption: str = "gaussian_noise",
    severity: int = 3,
    train_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> Task:
    """CIFAR-10 to train on, and the official corrupted images of one kind to test on.

    Args:
        corruption: the name of an .npy file.
        severity: 1 to 5.
        train_size, test_size: use fewer samples, with equal numbers of each class.
        seed: of drawing those.
        download: fetch the archives if the data are missing.
    """
    if look(PLACES) is None and download:
        fetch(ARCHIVES["cifar10c"], folders()[0])
    test = corrupted_images(corruption, severity, test_size, seed)
    clean = cifar("cifar10", train_size, None, seed, download)
    note = f"tested on CIFAR-10-C, {corruption}, severity {severity}"
    return replace(clean, name="cifar10c", test=test, note="; ".join(filter(None, [clean.note, note])))


def corrupted_images(corruption: str, severity: int, test_size: int | None = None, seed: int = 0) -> Split:
    """The official corrupted test images of one kind and severity.

    Args:
        corruption, severity, test_size, seed: as in ``cifar10c``.
    """
    if severity not in range(1, 6):
        raise ValueError(f"expected severity to be 1, 2, 3, 4 or 5 (got {severity})")
    pixels, y = opened(corruption)
    kept = drawn(y, test_size, seed)
    chosen = pixels[(kept + (severity - 1) * PER_SEVERITY).numpy()]
    return Split(torch.from_numpy(chosen).permute(0, 3, 1, 2).float().div_(255).contiguous(), y[kept])


def opened(corruption: str) -> tuple[Any, Tensor]:
    """The pixels of one kind and all severities, memory-mapped, and the labels common to all severities; checked."""
    if corruption not in CORRUPTIONS:
        raise ValueError(f"unknown corruption {corruption!r}; known: {', '.join(CORRUPTIONS)}")
    path = find("cifar10c", PLACES, HOW)
    labels = read_array(path, _AGAIN)
    pixels = read_array(path.with_name(f"{corruption}.npy"), _AGAIN, memory_map=True)
    if labels.shape != (5 * PER_SEVERITY,) or pixels.shape != (5 * PER_SEVERITY, 32, 32, 3) or pixels.dtype != "uint8":
        raise DataError(
            f"{path.with_name(f'{corruption}.npy')} holds {pixels.dtype} of shape {pixels.shape} and labels of shape "
            f"{labels.shape}, expected uint8 of ({5 * PER_SEVERITY}, 32, 32, 3). {_AGAIN}"
        )
    by_severity = torch.from_numpy(labels.astype("int64")).view(5, PER_SEVERITY)
    y = by_severity[0]
    if y.min() < 0 or y.max() > 9 or not (by_severity == y).all():
        raise DataError(f"{path} does not hold the same labels from 0 to 9 for every severity: damaged. {_AGAIN}")
    return pixels, y
