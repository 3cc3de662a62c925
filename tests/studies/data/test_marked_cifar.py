"""CIFAR-10 with a mark that misleads: groups, their sizes, and that no image is both trained on and chosen by."""

from pathlib import Path

import pytest
import torch

from geonorm.lab.data import DataError, load


def test_groups_and_marks() -> None:
    try:
        task = load("marked_cifar10", train_size=400, valid_size=100, test_size=200)
    except DataError:
        pytest.skip("CIFAR-10 is not at hand")
    assert (len(task.train), len(task.test)) == (400, 200)
    assert task.valid is not None
    assert len(task.valid) == 100
    for split, wrong in ((task.train, 0.05), (task.valid, 0.5), (task.test, 0.5)):
        assert split.groups is not None
        assert (split.groups.sum(1) == 1).all(), "every image is in one group"
        assert split.groups[:, [1, 3]].sum() == wrong * len(split)
        assert float(split.y.double().mean()) == 0.6, "six of the ten kinds are animals"
        corner = split.tensor()[:, 0, 0, 0]
        is_right = split.groups[:, [0, 2]].any(1)
        assert torch.equal(corner == split.y, is_right)
    rest = slice(None), slice(None), slice(4, None)
    trained = {image.numpy().tobytes() for image in task.train.tensor()[rest]}
    chosen_by = {image.numpy().tobytes() for image in task.valid.tensor()[rest]}
    assert not trained & chosen_by


def test_without_cifar_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match="geonorm data fetch cifar10"):
        load("marked_cifar10")
