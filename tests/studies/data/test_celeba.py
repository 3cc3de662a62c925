"""CelebA in torchvision's layout, with ten small images."""

from pathlib import Path

import pytest
import torch

from geonorm.lab.data import DataError, load
from helpers import corrupt_files
from studies.data import celeba

Image = pytest.importorskip("PIL.Image")
HEADER = ["Attractive", "Bald", "Blond_Hair", "Male", "Straight_Hair", "Wavy_Hair", "Young"]
# One row per image, in the order of the header; the first six are for training.
ROWS = [
    (1, -1, 1, -1, 1, -1, 1),
    (-1, -1, 1, -1, -1, 1, 1),
    (1, -1, -1, 1, 1, -1, 1),
    (-1, -1, -1, 1, -1, -1, -1),
    (1, -1, -1, -1, -1, 1, 1),
    (-1, 1, -1, 1, -1, -1, -1),
    (1, -1, 1, 1, 1, -1, 1),
    (1, -1, -1, -1, -1, 1, 1),
    (1, -1, 1, -1, 1, -1, -1),
    (-1, -1, -1, 1, -1, 1, 1),
]
PARTS = [0] * 6 + [1] * 2 + [2] * 2
COUNTS = {
    "male": (0, 3),
    "female": (2, 1),
    "young": (2, 2),
    "old": (0, 2),
    "attractive": (1, 2),
    "not attractive": (1, 2),
    "straight hair": (1, 1),
    "wavy hair": (1, 1),
}


@pytest.fixture
def faces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = folder / "celeba"
    (home / "img_align_celeba").mkdir(parents=True)
    names = [f"{i:06d}.jpg" for i in range(1, 11)]
    for i, name in enumerate(names):
        Image.new("RGB", (18, 22), (20 * i, 0, 0)).save(home / "img_align_celeba" / name)
    table = [f"{name}  {' '.join(map(str, row))}" for name, row in zip(names, ROWS, strict=True)]
    (home / "list_attr_celeba.txt").write_text("\n".join(["10", " ".join(HEADER), *table]) + "\n")
    parts = [f"{name} {part}" for name, part in zip(names, PARTS, strict=True)]
    (home / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    monkeypatch.setattr(celeba, "PUBLISHED", COUNTS)
    return home


def test_right(faces: Path) -> None:
    task = load("celeba", size=8)
    assert (len(task.train), len(task.valid), len(task.test)) == (6, 2, 2)
    assert task.train.y.tolist() == [1, 1, 0, 0, 0, 0]
    assert task.train.groups.shape == (6, 16)
    index = dict(zip(task.group_names, range(16), strict=True))
    assert task.train.groups[0].nonzero().flatten().tolist() == [
        index[name] for name in ("female, blond", "young, blond", "attractive, blond", "straight hair, blond")
    ]
    images = task.train.x[torch.tensor([2, 5])]
    assert images.shape == (2, 3, 8, 8)
    assert images[:, 0].mean((1, 2)).tolist() == pytest.approx([40 / 255, 100 / 255], abs=2 / 255)  # JPEG
    assert task.train.take(torch.tensor([1])).tensor().shape == (1, 3, 8, 8)


def test_published_table_adds_up() -> None:
    """Both of a pair of opposite groups make all 162,770 training samples; the check would not be one otherwise."""
    for one, other in (("male", "female"), ("young", "old"), ("attractive", "not attractive")):
        assert sum(celeba.PUBLISHED[one]) + sum(celeba.PUBLISHED[other]) == 162770
        assert celeba.PUBLISHED[one][0] + celeba.PUBLISHED[other][0] == 24267


def test_counts_are_checked(faces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celeba, "PUBLISHED", {**COUNTS, "young": (20230, 106558)})
    with pytest.raises(DataError, match="2 blond and 2 other training samples in the group 'young', expected 20230"):
        load("celeba")


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("list_attr_celeba.txt", corrupt_files.truncate, r"truncated|expected a file name and 7 times 1 or -1"),
        ("list_attr_celeba.txt", lambda path: corrupt_files.flip_bit(path, 0.7), "missing or damaged"),
        ("list_attr_celeba.txt", corrupt_files.replace_with_web_page, "a different file"),
        ("list_attr_celeba.txt", lambda path: path.write_text(""), "is empty"),
        ("list_attr_celeba.txt", Path.unlink, r"celeba is not at hand.*as torchvision's CelebA"),
        ("list_eval_partition.txt", corrupt_files.truncate, "does not list the same images"),
        ("list_eval_partition.txt", lambda path: corrupt_files.flip_bit(path, 0.5, 1), "does not list the same images"),
        ("list_eval_partition.txt", corrupt_files.replace_with_web_page, "does not list the same images"),
        ("list_eval_partition.txt", Path.unlink, "missing or damaged"),
    ],
)
def test_damaged_tables(faces: Path, name: str, action, message: str) -> None:
    action(faces / name)
    with pytest.raises(DataError, match=message):
        load("celeba")


def test_a_wrong_sign_shows_in_the_counts(faces: Path) -> None:
    table = faces / "list_attr_celeba.txt"
    table.write_text(table.read_text().replace("000003.jpg  1 -1 -1 1", "000003.jpg  1 -1 1 1"))
    with pytest.raises(DataError, match="in the group 'male'"):
        load("celeba")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (corrupt_files.truncate, r"000001.jpg is not an image, or is damaged"),
        (corrupt_files.replace_with_web_page, r"000001.jpg is not an image, or is damaged"),
        (Path.unlink, r"000001.jpg is missing"),
    ],
)
def test_damaged_image_is_named_when_read(faces: Path, action, message: str) -> None:
    action(faces / "img_align_celeba" / "000001.jpg")
    task = load("celeba", size=8)
    with pytest.raises(DataError, match=message):
        task.train.x[torch.tensor([0])]


def test_missing_images(faces: Path) -> None:
    (faces / "img_align_celeba").rename(faces / "elsewhere")
    with pytest.raises(DataError, match=r"unpack img_align_celeba.zip"):
        load("celeba")
