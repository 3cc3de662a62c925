"""Images in ImageNet's layout: a folder per class in train/ and val/."""

from __future__ import annotations

from pathlib import Path

import torch

from .errors import DataError
from .images import MEAN, STD, ImageFiles
from .places import find
from .task import Split, Task, drawn

PLACES = ("imagenet/train",)
HOW = (
    "Put images into imagenet/train/CLASS/ and imagenet/val/CLASS/ (torchvision's ImageFolder layout), or name another "
    "folder with load('image_folder', folder=...). ImageNet needs an account: nothing is downloaded."
)
_ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}


def image_folder(
    folder: str | Path | None = None,
    size: int = 224,
    train_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
) -> Task:
    """Images by class; they stay in their files. A damaged image raises when it is read.

    Args:
        folder: with train/ and val/ inside; without it ``imagenet`` in the data folder.
        size: height and width of the images.
        train_size, test_size: use fewer samples, with equal numbers of each class.
        seed: of drawing those.
    """
    root = find("image_folder", PLACES, HOW).parent if folder is None else Path(folder).expanduser()
    classes = sorted(path.name for path in _inside(root / "train") if path.is_dir())
    if not classes:
        raise DataError(f"{root / 'train'} contains no folders of classes. {HOW}")
    strange = {path.name for path in _inside(root / "val") if path.is_dir()} - set(classes)
    if strange:
        raise DataError(f"{root / 'val'} has classes that train lacks: {', '.join(sorted(strange)[:5])}")
    splits = []
    for part, number in (("train", train_size), ("val", test_size)):
        paths: list[Path] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            inside = root / part / name
            files = sorted(path for path in _inside(inside) if path.suffix.lower() in _ENDINGS)
            if not files:
                raise DataError(f"{inside} contains no images ({', '.join(sorted(_ENDINGS))}): unpack them again")
            paths += files
            labels += [label] * len(files)
        y = torch.tensor(labels)
        kept = drawn(y, number, seed)
        splits.append(Split(ImageFiles(paths, size).take_samples(kept), y[kept]))
    return Task(
        root.name,
        splits[0],
        splits[1],
        classes=len(classes),
        input_shape=(3, size, size),
        mean=torch.tensor(MEAN),
        std=torch.tensor(STD),
        class_names=tuple(classes),
    )


def _inside(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is missing. {HOW}")
    return list(folder.iterdir())
