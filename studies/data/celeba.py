"""CelebA (Liu et al., 2015) in torchvision's folder: is the hair blond, with groups that overlap."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from geonorm.lab.data.errors import DataError
from geonorm.lab.data.images import MEAN, STD, ImageFiles
from geonorm.lab.data.places import find
from geonorm.lab.data.task import Split, Task, drawn

PLACES = ("celeba/list_attr_celeba.txt",)
HOW = (
    "Fetch img_align_celeba.zip (MD5 00d2c5bc6d35e252742224ab0c1e8fcb, torchvision, datasets/celeba.py), "
    "list_attr_celeba.txt and list_eval_partition.txt from the CelebA project, unpack the images, and put all into a "
    "folder celeba, as torchvision's CelebA(download=True) does. They are on Google Drive, which asks for "
    "confirmation before it sends large files: nothing is downloaded here."
)
# Group: attribute of the official table, and the value it must have.
GROUPS = {
    "male": ("Male", True),
    "female": ("Male", False),
    "young": ("Young", True),
    "old": ("Young", False),
    "attractive": ("Attractive", True),
    "not attractive": ("Attractive", False),
    "straight hair": ("Straight_Hair", True),
    "wavy hair": ("Wavy_Hair", True),
}
# Training samples (blond, other) of each group: table 3 of the AugNorm paper.
PUBLISHED = {
    "male": (1387, 66874),
    "female": (22880, 71629),
    "young": (20230, 106558),
    "old": (4037, 31945),
    "attractive": (17008, 66595),
    "not attractive": (7259, 71908),
    "straight hair": (5178, 28769),
    "wavy hair": (11342, 40640),
}
_AGAIN = "Fetch it again."


def celeba(
    size: int = 64,
    train_size: int | None = None,
    valid_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
) -> Task:
    """CelebA: faces, target ``Blond_Hair``, 16 overlapping groups, the official split. Images stay in their files.

    Args:
        size: height and width of the images.
        train_size, valid_size, test_size: use fewer samples, with equal numbers of each label.
        seed: of drawing those.
    """
    table = find("celeba", PLACES, HOW)
    names, attributes = _read_attributes(table)
    part = _read_partition(table.with_name("list_eval_partition.txt"), names)
    blond = attributes["Blond_Hair"]
    members = [attributes[attribute] == value for attribute, value in GROUPS.values()]
    groups = torch.stack([member & (blond == label) for member in members for label in (True, False)], 1)
    _check_counts(groups[part == 0], table)
    images = table.with_name("img_align_celeba")
    if not images.is_dir():
        raise DataError(f"{images} is missing: unpack img_align_celeba.zip next to {table.name}")
    splits = []
    for code, number in ((0, train_size), (1, valid_size), (2, test_size)):
        chosen = (part == code).nonzero().flatten()
        chosen = chosen[drawn(blond[chosen].long(), number, seed)]
        files = ImageFiles([images / names[i] for i in chosen.tolist()], size)
        splits.append(Split(files, blond[chosen].long(), groups[chosen]))
    return Task(
        "celeba",
        splits[0],
        splits[2],
        classes=2,
        input_shape=(3, size, size),
        valid=splits[1],
        mean=torch.tensor(MEAN),
        std=torch.tensor(STD),
        group_names=tuple(f"{name}, {hair}" for name in GROUPS for hair in ("blond", "other")),
        class_names=("other", "blond"),
    )


def _check_counts(train: Tensor, table: Path) -> None:
    counts = train.sum(0).view(-1, 2).tolist()
    for (name, expected), found in zip(PUBLISHED.items(), counts, strict=True):
        if tuple(found) != expected:
            raise DataError(
                f"{table} has {found[0]} blond and {found[1]} other training samples in the group {name!r}, expected "
                f"{expected[0]} and {expected[1]} (published): it or the partition is damaged or incomplete. {_AGAIN}"
            )


def _read_attributes(path: Path) -> tuple[list[str], dict[str, Tensor]]:
    """File names, and the required attributes as bool."""
    lines = _lines(path)
    needed = ["Blond_Hair", *dict.fromkeys(attribute for attribute, _ in GROUPS.values())]
    header = lines[1].split() if len(lines) > 1 else []
    if not lines[0].strip().isdigit() or not set(needed) <= set(header):
        raise DataError(f"{path} does not begin with a count and 40 attribute names: it is a different file. {_AGAIN}")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != int(lines[0]):
        raise DataError(f"{path} has {len(rows)} rows, its first line says {lines[0].strip()}: truncated. {_AGAIN}")
    for number, row in enumerate(rows, 3):
        if len(row) != len(header) + 1 or not {"1", "-1"}.issuperset(row[1:]):
            raise DataError(f"{path}, line {number}: expected a file name and {len(header)} times 1 or -1. {_AGAIN}")
    columns = {name: torch.tensor([row[1 + header.index(name)] == "1" for row in rows]) for name in needed}
    return [row[0] for row in rows], columns


def _read_partition(path: Path, names: list[str]) -> Tensor:
    rows = [line.split() for line in _lines(path)]
    if [row[0] for row in rows] != names or not {"0", "1", "2"}.issuperset(row[-1] for row in rows):
        raise DataError(f"{path} does not list the same images as the attributes, each with 0, 1 or 2. {_AGAIN}")
    return torch.tensor([int(row[-1]) for row in rows])


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is missing or damaged ({error}). {_AGAIN}") from error
    if not lines:
        raise DataError(f"{path} is empty. {_AGAIN}")
    return [line for line in lines if line.strip()]
