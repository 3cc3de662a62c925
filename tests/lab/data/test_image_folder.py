"""Images in ImageNet's layout."""

from pathlib import Path

import pytest
import torch

from geonorm.lab.data import DataError, load
from helpers import corrupt_files

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def images(folder: Path) -> Path:
    for part, number in (("train", 4), ("val", 2)):
        for red, name in ((50, "cat"), (200, "dog")):
            home = folder / "imagenet" / part / name
            home.mkdir(parents=True)
            for i in range(number):
                Image.new("RGB", (20 + 10 * i, 16), (red, 0, 0)).save(home / f"{i}.png")
            (home / "notes.txt").write_text("no image")
    return folder / "imagenet"


def test_right(images: Path) -> None:
    task = load("image_folder", size=8)
    assert (task.class_names, task.classes, task.input_shape) == (("cat", "dog"), 2, (3, 8, 8))
    assert task.train.y.tolist() == [0] * 4 + [1] * 4
    assert torch.equal(task.test.tensor()[:, 0, 0, 0], torch.tensor([50, 50, 200, 200]) / 255)
    assert len(load("image_folder", folder=images, train_size=4).train) == 4


def test_an_image_too_large_to_be_true(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one flipped bit in the size makes it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"0.png is not an image, or is damaged .*exceeds limit"):
        load("image_folder", size=8).train.tensor()


@pytest.mark.parametrize(
    "action", [corrupt_files.truncate, corrupt_files.flip_bit, corrupt_files.replace_with_web_page, Path.unlink]
)
def test_damaged_image_is_named_when_read(images: Path, action) -> None:
    task = load("image_folder", size=8)
    action(images / "train" / "dog" / "1.png")
    with pytest.raises(DataError, match=r"dog/1.png is (missing|not an image, or is damaged)"):
        task.train.tensor()


def test_missing(images: Path, folder: Path) -> None:
    for path in (images / "val" / "dog").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="contains no images"):
        load("image_folder")
    (images / "val" / "bird").mkdir()
    with pytest.raises(DataError, match="classes that train lacks: bird"):
        load("image_folder")
    (images / "val").rename(images / "test")
    with pytest.raises(DataError, match="val is missing"):
        load("image_folder")
    images.rename(folder / "elsewhere")
    with pytest.raises(DataError, match="image_folder is not at hand"):
        load("image_folder")
    (folder / "empty" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="no folders of classes"):
        load("image_folder", folder=folder / "empty")
