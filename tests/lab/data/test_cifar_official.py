"""The official Python files of CIFAR, small ones of the same bytes, and what a hostile one cannot do."""

import hashlib
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from geonorm.lab.data import DataError, cifar, find_source, load, plain_pickle
from helpers import corrupt_files


def text(word: str) -> bytes:
    return b"U" + bytes([len(word)]) + word.encode()


def array(pixels: np.ndarray, kind: str = "u1") -> bytes:
    """As Python 2 wrote arrays."""
    rows, columns = pixels.shape
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + b"".join(b"J" + struct.pack("<i", size) for size in (rows, columns))
        + b"\x86cnumpy\ndtype\n"
        + text(kind)
        + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<I", pixels.size)
        + pixels.tobytes()
        + b"tb"
    )


def batch(pixels: np.ndarray, labels: list[int], key: str = "labels") -> bytes:
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(key) + numbers + text("data") + array(pixels) + b"u."


def names(words: list[str], key: str) -> bytes:
    return b"\x80\x02}(" + text(key) + b"](" + b"".join(text(word) for word in words) + b"eu."


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def official(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray]:
    """CIFAR-10 with two training files of six samples, and four test samples."""
    pixels = np.random.default_rng(0).integers(0, 256, (16, 3072), dtype=np.uint8)
    labels = [0, 1, 2] * 4 + [0, 1, 2, 0]
    contents = {
        "data_batch_1": batch(pixels[:6], labels[:6]),
        "data_batch_2": batch(pixels[6:12], labels[6:12]),
        "test_batch": batch(pixels[12:], labels[12:]),
        "batches.meta": names(["cat", "dog", "frog"], "label_names"),
    }
    home = folder / "cifar-10-batches-py"
    home.mkdir()
    for name, content in contents.items():
        (home / name).write_bytes(content)
    sums = {name: md5(content) for name, content in contents.items()}
    layout = cifar.OFFICIAL["cifar10"]._replace(
        train={name: sums[name] for name in ("data_batch_1", "data_batch_2")},
        test={"test_batch": sums["test_batch"]},
        meta=("batches.meta", sums["batches.meta"]),
        classes=3,
        sizes=(12, 4),
    )
    monkeypatch.setitem(cifar.OFFICIAL, "cifar10", layout)
    return home, pixels


def test_right(official: tuple[Path, np.ndarray]) -> None:
    _, pixels = official
    task = load("cifar10")
    expected = torch.from_numpy(pixels.reshape(-1, 3, 32, 32)).float() / 255
    torch.testing.assert_close(task.train.x, expected[:12], rtol=0, atol=0)
    torch.testing.assert_close(task.test.x, expected[12:], rtol=0, atol=0)
    assert task.train.y.tolist() == [0, 1, 2] * 4
    assert (task.classes, task.class_names, task.official, task.note) == (3, ("cat", "dog", "frog"), True, "")
    torch.testing.assert_close(task.mean, expected[:12].mean((0, 2, 3)))
    torch.testing.assert_close(task.std, expected[:12].std((0, 2, 3), correction=0))


def test_torchvision_root(official: tuple[Path, np.ndarray], folder: Path) -> None:
    (folder / "cifar10").mkdir()
    official[0].rename(folder / "cifar10" / "cifar-10-batches-py")
    assert len(load("cifar10").train) == 12


def test_fewer_samples(official: tuple[Path, np.ndarray]) -> None:
    task = load("cifar10", train_size=6, seed=1)
    assert task.train.y.bincount().tolist() == [2, 2, 2]
    assert "6 of 12 training" in task.note
    assert torch.equal(task.train.x, load("cifar10", train_size=6, seed=1).train.x)


@pytest.mark.parametrize(
    "action",
    [
        corrupt_files.truncate,
        corrupt_files.flip_bit,
        lambda path: corrupt_files.flip_bit(path, 0.9, 0),
        corrupt_files.replace_with_web_page,
    ],
)
@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_damaged(official: tuple[Path, np.ndarray], name: str, action) -> None:
    action(official[0] / name)
    with pytest.raises(
        DataError, match=rf"{name} is damaged or a different file: its MD5 is .* Delete it and fetch it again"
    ):
        load("cifar10")


def test_missing_file(official: tuple[Path, np.ndarray]) -> None:
    (official[0] / "data_batch_2").unlink()
    with pytest.raises(DataError, match="data_batch_2 is missing: unpack the archive again"):
        load("cifar10")


def test_missing_all(folder: Path) -> None:
    with pytest.raises(DataError, match=r"cifar100 is not at hand: looked for cifar-100-python .* download=True"):
        load("cifar100")


@pytest.fixture
def hundred(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Twelve training and test images of two classes in the place of CIFAR-100's; every pixel tells its image."""
    pixels = np.arange(12, dtype=np.uint8)[:, None].repeat(3072, 1)
    labels = [1, 0] * 6
    contents = {
        "train": batch(pixels, labels, "fine_labels"),
        "test": batch(pixels, labels, "fine_labels"),
        "meta": names(["apple", "bear"], "fine_label_names"),
    }
    (folder / "cifar-100-python").mkdir()
    for name, content in contents.items():
        (folder / "cifar-100-python" / name).write_bytes(content)
    layout = cifar.OFFICIAL["cifar100"]._replace(
        train={"train": md5(contents["train"])},
        test={"test": md5(contents["test"])},
        meta=("meta", md5(contents["meta"])),
        classes=2,
        sizes=(12, 12),
    )
    monkeypatch.setitem(cifar.OFFICIAL, "cifar100", layout)
    return labels


def test_cifar100(hundred: list[int]) -> None:
    assert load("cifar100").test.y.tolist() == hundred


def test_a_subset_is_drawn_from_the_official_files(hundred: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    few = cifar.COMPACT["cifar100_subset"]._replace(per_class=(3, 2))
    monkeypatch.setitem(cifar.COMPACT, "cifar100_subset", few)
    task = load("cifar100_subset")
    for split, each in ((task.train, 3), (task.test, 2)):
        assert split.y.bincount().tolist() == [each, each]
        image = (255 * split.tensor()[:, 0, 0, 0]).round().long()
        assert len(image.unique()) == 2 * each
        assert split.y.tolist() == [hundred[i] for i in image]
    assert "a subset" in task.note
    assert torch.equal(load("cifar100_subset").train.tensor(), task.train.tensor())
    assert find_source("cifar100_subset").at_hand


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (batch(np.zeros((1, 3000), dtype=np.uint8), [0]), "lacks data of 3072 bytes"),
        (batch(np.zeros((2, 3072), dtype=np.uint8), [0]), "lacks data of 3072 bytes"),
        (batch(np.zeros((1, 3072), dtype=np.uint8), [7]), "labels from 7 to 7, expected 0 to 2"),
        (batch(np.zeros((1, 3072), dtype=np.uint8), [0]), "holds 7 samples in data_batch_1, data_batch_2, expected 12"),
    ],
    ids=["narrow", "too few labels", "strange label", "too few samples"],
)
def test_wrong_content(official: tuple[Path, np.ndarray], monkeypatch, content: bytes, message: str) -> None:
    (official[0] / "data_batch_2").write_bytes(content)
    layout = cifar.OFFICIAL["cifar10"]
    train = {**layout.train, "data_batch_2": md5(content)}
    monkeypatch.setitem(cifar.OFFICIAL, "cifar10", layout._replace(train=train))
    with pytest.raises(DataError, match=message):
        load("cifar10")


class Hostile:
    """Would write a file if it were unpickled as pickles are."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_pickle_runs(tmp_path: Path, protocol: int) -> None:
    path, mark = tmp_path / "batch", tmp_path / "mark"
    path.write_bytes(pickle.dumps({"data": Hostile(mark)}, protocol))
    with pytest.raises(DataError, match=r"the name (posix|os|nt)\.system.*Nothing in it was run"):
        plain_pickle.read_plain(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}(" + text("data") + array(np.zeros((1, 4), dtype=np.uint8), "O8") + b"u.",  # Python objects
        b"\x80\x02}(" + text("data") + array(np.zeros((1, 4), dtype=np.uint8), "f4") + b"u.",
        b"cbuiltins\neval\n(U\x011tR.",
        b"cnumpy\ndtype\n}U\x08__call__K\x01sb.",  # a state for a function
        b"P1\n.",  # a reference to something outside
        b"\x82\x01.",  # an extension
        b"\x80\x02](K\x01e.",  # a list
        pickle.dumps({b"data": np.zeros(3)}, 2),
        b"",
        b"\x80\x02}(",
    ],
    ids=["objects", "floats", "eval", "state", "reference", "extension", "list", "doubles", "empty", "truncated"],
)
def test_only_plain_things_are_built(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"not a plain pickle|holds a list"):
        plain_pickle.read_plain(path)
