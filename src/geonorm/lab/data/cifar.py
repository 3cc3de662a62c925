"""CIFAR-10 and CIFAR-100: the official Python files, torchvision's folders, or the compact layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..extras import require
from .checksums import check_md5
from .download import ARCHIVES, fetch
from .errors import DataError
from .mosaic import Mosaics, read_mosaics, read_names
from .places import find, folders, look
from .plain_pickle import read_plain
from .task import Split, Task, drawn, statistics

SOURCE = "torchvision, datasets/cifar.py"


class Official(NamedTuple):
    """The official files of one set: name to MD5 (torchvision's table), and the keys inside."""

    train: dict[str, str]
    test: dict[str, str]
    meta: tuple[str, str]
    labels: bytes
    names: bytes
    classes: int
    sizes: tuple[int, int]


OFFICIAL = {
    "cifar10": Official(
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        {"test_batch": "40351d587109b95175f43aff81a1287e"},
        ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
        b"labels",
        b"label_names",
        10,
        (50000, 10000),
    ),
    "cifar100": Official(
        {"train": "16019d7e3df5f24257cddd939b257f8d"},
        {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        ("meta", "7973b15100ade9c7d40fb424638fde48"),
        b"fine_labels",
        b"fine_label_names",
        100,
        (50000, 10000),
    ),
}
# The mean that many projects publish for CIFAR-10, in full precision.
COMPACT = {
    "cifar10": Mosaics(
        tuple(f"train_{i}.webp" for i in range(1, 6)),
        ("test.webp",),
        (5000, 1000),
        10,
        (0.49139967861519607, 0.48215840839460783, 0.44653091444546567),
    ),
    "cifar100_subset": Mosaics(("train.webp",), ("test.webp",), (100, 50), 100, None),
}
_SUBSET, _WHOLE = "cifar100_subset", "cifar100"
_CIFAR100 = ("cifar-100-python", "cifar100/cifar-100-python")
# Folders of the official layout, and a file that identifies the compact one.
PLACES = {
    "cifar10": ("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10/train_labels.npy"),
    _WHOLE: _CIFAR100,
    _SUBSET: ("cifar100_subset/train_labels.npy", *_CIFAR100),
}


def how(name: str) -> str:
    """Instructions for getting the data."""
    if name == _SUBSET:
        train, test = COMPACT[_SUBSET].per_class
        return f"{how(_WHOLE)} Of each of its classes {train} training and {test} test images are drawn."
    archive = ARCHIVES[name]
    source = f"{archive.url} (MD5 {archive.digest}, {archive.source})"
    return f"geonorm data fetch {name}, or load({name!r}, download=True), fetches {source}."


def cifar(
    name: str,
    train_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    download: bool = False,
    side: int = 32,
) -> Task:
    """CIFAR-10, CIFAR-100, or a subset of CIFAR-100, drawn from it or in the compact layout; 32×32 RGB.

    Args:
        name: ``"cifar10"``, ``"cifar100"`` or ``"cifar100_subset"``.
        train_size, test_size: use fewer samples, with equal numbers of each class.
        seed: of drawing those.
        download: fetch the official archive if the data are missing.
        side: height and width; 16 averages squares of 2×2 pixels, for quick trials.
    """
    if side not in (8, 16, 32):
        raise ValueError(f"expected side to be 8, 16 or 32 (got {side!r})")
    official = _WHOLE if name == _SUBSET else name
    path = look(PLACES[name])
    if path is None and download:
        path = fetch(ARCHIVES[official], folders()[0])
    path = path or find(name, PLACES[name], how(name))
    if path.suffix == ".npy":
        layout = COMPACT[name]
        x_train, y_train, x_test, y_test = read_mosaics(path.parent, layout)
        names = read_names(path.parent / "class_names.txt", layout.classes)
    else:
        x_train, y_train, x_test, y_test, names = _read_official(path, OFFICIAL[official])
        if name == _SUBSET:
            per_train, per_test = COMPACT[name].per_class
            x_train, y_train = _drawn(x_train, y_train, per_train * len(names))
            x_test, y_test = _drawn(x_test, y_test, per_test * len(names))
    keep_train, keep_test = (
        drawn(torch.from_numpy(y_train), train_size, seed),
        drawn(torch.from_numpy(y_test), test_size, seed),
    )
    train, test = _split(x_train, y_train, keep_train, side), _split(x_test, y_test, keep_test, side)
    mean, std = statistics(train.tensor())
    parts = []
    if name not in OFFICIAL:
        parts.append("a subset: accuracies are not comparable with published ones")
    if len(keep_train) < len(y_train) or len(keep_test) < len(y_test):
        parts.append(f"{len(train)} of {len(y_train)} training and {len(test)} of {len(y_test)} test samples")
    return Task(
        name,
        train,
        test,
        classes=len(names),
        input_shape=(3, side, side),
        mean=mean,
        std=std,
        class_names=tuple(names),
        note="; ".join(parts),
    )


def _drawn(pixels: Any, labels: Any, size: int) -> tuple[Any, Any]:
    kept = drawn(torch.from_numpy(labels), size, seed=0).numpy()
    return pixels[kept], labels[kept]


def _split(pixels: Any, labels: Any, kept: torch.Tensor, side: int) -> Split:
    index = kept.numpy()
    images = torch.from_numpy(pixels[index]).float().div_(255)
    if side < images.shape[-1]:
        images = torch.nn.functional.avg_pool2d(images, images.shape[-1] // side)
    return Split(images, torch.from_numpy(labels[index]))


def _read_official(folder: Path, layout: Official) -> tuple[Any, Any, Any, Any, list[str]]:
    numpy = require("numpy", "numpy")
    found: list[Any] = []
    for files, size in zip((layout.train, layout.test), layout.sizes, strict=True):
        parts = [_read_batch(folder / file, digest, layout) for file, digest in files.items()]
        pixels, labels = (numpy.concatenate(part) for part in zip(*parts, strict=True))
        if len(labels) != size:
            raise DataError(f"{folder} holds {len(labels)} samples in {', '.join(files)}, expected {size}")
        found += [pixels, labels]
    meta, digest = layout.meta
    check_md5(folder / meta, digest, SOURCE)
    names = [name.decode("ascii") for name in read_plain(folder / meta).get(layout.names, [])]
    return found[0], found[1], found[2], found[3], names


def _read_batch(path: Path, digest: str, layout: Official) -> tuple[Any, Any]:
    """Pixels (uint8, NCHW) and labels of one official file."""
    numpy = require("numpy", "numpy")
    check_md5(path, digest, SOURCE)
    content = read_plain(path)
    pixels, labels = content.get(b"data"), content.get(layout.labels)
    if not isinstance(pixels, numpy.ndarray) or not isinstance(labels, list) or pixels.shape != (len(labels), 3072):
        raise DataError(f"{path} lacks data of 3072 bytes each with as many {layout.labels.decode()}: another file")
    y = numpy.array(labels, dtype="int64")
    if not ((y >= 0) & (y < layout.classes)).all():
        raise DataError(f"{path} has labels from {y.min()} to {y.max()}, expected 0 to {layout.classes - 1}")
    return pixels.reshape(-1, 3, 32, 32), y
