"""CIFAR as mosaics of tiles, and CIFAR-10-C beside it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from geonorm.lab.choices import parse_evaluation
from geonorm.lab.data import DataError, cifar, cifar_c, load
from geonorm.lab.evaluate import check_evaluation, evaluate
from helpers import corrupt_files

Image = pytest.importorskip("PIL.Image")


def write_mosaic(path: Path, tiles: np.ndarray, columns: int) -> None:
    """NHWC tiles, row by row."""
    rows = len(tiles) // columns
    pixels = tiles.reshape(rows, columns, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(rows * 32, columns * 32, 3)
    Image.fromarray(pixels).save(path, format="WEBP", lossless=True)


@pytest.fixture
def compact(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray]:
    """Two training mosaics of 2×3 and a test mosaic of 2×2 tiles, two classes."""
    tiles = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    home = folder / "cifar10"
    home.mkdir()
    write_mosaic(home / "train_1.webp", tiles[:6], 3)
    write_mosaic(home / "train_2.webp", tiles[6:12], 3)
    write_mosaic(home / "test.webp", tiles[12:], 2)
    np.save(home / "train_labels.npy", np.array([0, 1] * 6, dtype=np.uint8))
    np.save(home / "test_labels.npy", np.array([0, 1] * 2, dtype=np.uint8))
    (home / "class_names.txt").write_text("cat\ndog\n")
    layout = cifar.COMPACT["cifar10"]._replace(
        train=("train_1.webp", "train_2.webp"),
        per_class=(6, 2),
        classes=2,
        mean=tuple(tiles[:12].mean((0, 1, 2)) / 255),
    )
    monkeypatch.setitem(cifar.COMPACT, "cifar10", layout)
    return home, tiles


def test_right(compact: tuple[Path, np.ndarray]) -> None:
    task = load("cifar10")
    expected = torch.from_numpy(compact[1].transpose(0, 3, 1, 2).copy()).float() / 255
    torch.testing.assert_close(task.train.x, expected[:12], rtol=0, atol=0)
    torch.testing.assert_close(task.test.x, expected[12:], rtol=0, atol=0)
    assert task.train.y.tolist() == [0, 1] * 6
    assert task.class_names == ("cat", "dog")


@pytest.mark.parametrize("name", ["train_1.webp", "train_2.webp", "test.webp"])
@pytest.mark.parametrize("action", [corrupt_files.truncate, corrupt_files.replace_with_web_page])
def test_damaged_images(compact: tuple[Path, np.ndarray], name: str, action) -> None:
    action(compact[0] / name)
    with pytest.raises(DataError, match=rf"{name} is not an image, or is damaged .*: fetch it again"):
        load("cifar10")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_flipped_bits(compact: tuple[Path, np.ndarray], share: float) -> None:
    """Random pixels are stored as they are: an image with a wrong bit still decodes, and only the mean tells."""
    corrupt_files.flip_bit(compact[0] / "train_2.webp", share, 3)
    with pytest.raises(DataError, match="damaged"):
        load("cifar10")


@pytest.mark.parametrize(
    "action",
    [
        corrupt_files.truncate,
        corrupt_files.flip_bit,
        corrupt_files.replace_with_web_page,
        lambda path: corrupt_files.flip_bit(path, 0.99, 0),
    ],
)
def test_damaged_labels(compact: tuple[Path, np.ndarray], action) -> None:
    action(compact[0] / "train_labels.npy")
    with pytest.raises(DataError, match=r"train_labels.npy .* Fetch the folder again"):
        load("cifar10")


def test_labels_with_objects_are_not_unpickled(compact: tuple[Path, np.ndarray]) -> None:
    np.save(compact[0] / "train_labels.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"not an \.npy file of numbers"):
        load("cifar10")


@pytest.mark.parametrize("name", ["train_1.webp", "test_labels.npy", "class_names.txt"])
def test_missing_file(compact: tuple[Path, np.ndarray], name: str) -> None:
    (compact[0] / name).unlink()
    with pytest.raises(DataError, match=rf"{name} (is missing|cannot be read)"):
        load("cifar10")


def test_another_number_of_tiles(compact: tuple[Path, np.ndarray]) -> None:
    write_mosaic(compact[0] / "test.webp", compact[1][:6], 3)
    with pytest.raises(DataError, match="6 test images and 4 labels"):
        load("cifar10")
    Image.new("RGB", (33, 32)).save(compact[0] / "test.webp")
    with pytest.raises(DataError, match="33×32, expected multiples of 32"):
        load("cifar10")


def test_the_subset_says_so(compact: tuple[Path, np.ndarray], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compact[0].rename(folder / "cifar100_subset")
    monkeypatch.setitem(cifar.COMPACT, "cifar100_subset", cifar.COMPACT["cifar10"])
    task = load("cifar100_subset")
    assert task.name == "cifar100_subset"
    assert "not comparable" in task.note
    with pytest.raises(DataError, match="cifar100 is not at hand"):
        load("cifar100")


@pytest.fixture
def corrupted(
    compact: tuple[Path, np.ndarray], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, np.ndarray]:
    monkeypatch.setattr(cifar_c, "PER_SEVERITY", 4)
    home = folder / "CIFAR-10-C"
    home.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.save(home / "fog.npy", pixels)
    np.save(home / "labels.npy", np.array([0, 1, 0, 1] * 5, dtype=np.uint8))
    return home, pixels


def test_official_corruptions(corrupted: tuple[Path, np.ndarray], compact: tuple[Path, np.ndarray]) -> None:
    task = load("cifar10c", corruption="fog", severity=2)
    expected = torch.from_numpy(corrupted[1][4:8].transpose(0, 3, 1, 2).copy()).float() / 255
    torch.testing.assert_close(task.test.x, expected, rtol=0, atol=0)
    torch.testing.assert_close(task.train.x, load("cifar10").train.x)
    assert "CIFAR-10-C, fog, severity 2" in task.note


def test_a_model_is_tested_on_the_official_corruptions(corrupted: tuple[Path, np.ndarray]) -> None:
    how, task = parse_evaluation("cifar10c(corruption=fog, severity=2)"), load("cifar10")
    check_evaluation(task, how)
    bright = torch.from_numpy(corrupted[1][4:8].mean((1, 2, 3)))

    class Brighter(torch.nn.Module):
        """Says 1 for the brighter half of the images of severity 2."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            says = (255 * x.mean((1, 2, 3)) > bright.median() + 1e-3).long()
            return torch.nn.functional.one_hot(says, 10).float()

    expected = int(((bright > bright.median() + 1e-3).long() == torch.tensor([0, 1, 0, 1])).sum())
    assert evaluate(Brighter(), task, how, seed=0)["correct"] == expected
    with pytest.raises(ValueError, match="expected cifar10 at 32×32"):
        check_evaluation(load("cifar10", side=16), how)
    (corrupted[0] / "fog.npy").unlink()
    with pytest.raises(DataError, match=r"fog.npy is missing"):
        check_evaluation(task, how)


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("fog.npy", corrupt_files.truncate, "not an .npy file of numbers, or is damaged"),
        ("fog.npy", lambda path: corrupt_files.flip_bit(path, 0), "not an .npy file of numbers, or is damaged"),
        ("fog.npy", corrupt_files.replace_with_web_page, "not an .npy file of numbers, or is damaged"),
        ("fog.npy", lambda path: np.save(path, np.zeros((4, 32, 32, 3))), r"expected uint8 of \(20, 32, 32, 3\)"),
        ("fog.npy", Path.unlink, "fog.npy is missing"),
        ("labels.npy", corrupt_files.truncate, "not an .npy file"),
        (
            "labels.npy",
            lambda path: corrupt_files.flip_bit(path, 0.95, 0),
            "same labels from 0 to 9 for every severity",
        ),
        ("labels.npy", Path.unlink, r"cifar10c is not at hand.*zenodo"),
    ],
)
def test_damaged_corruptions(corrupted: tuple[Path, np.ndarray], name: str, action, message: str) -> None:
    action(corrupted[0] / name)
    with pytest.raises(DataError, match=message):
        load("cifar10c", corruption="fog", severity=5)


def test_unknown_corruption_or_severity(corrupted: tuple[Path, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="unknown corruption 'rain'; known: brightness"):
        load("cifar10c", corruption="rain")
    with pytest.raises(ValueError, match="severity to be 1, 2, 3, 4 or 5"):
        load("cifar10c", corruption="fog", severity=0)
