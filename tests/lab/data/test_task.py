"""Tasks, splits and folds; the sets that need no file; names and places."""

import sys
from pathlib import Path

import pytest
import torch

from geonorm.lab.data import DataError, Split, Task, load, sources
from geonorm.lab.data.task import statistics


def numbered(samples: int, official: bool) -> Task:
    """Samples that carry their number, three classes; the last quarter for testing."""
    x, y = torch.arange(samples).float().view(-1, 1, 1, 1), torch.arange(samples) % 3
    cut = 3 * samples // 4
    return Task(
        "n", Split(x[:cut], y[:cut]), Split(x[cut:], y[cut:]), 3, (1, 1, 1), official=official, mean=x.mean((0, 2, 3))
    )


@pytest.mark.parametrize(("official", "covered"), [(True, 36), (False, 48)])
def test_folds_test_every_sample_once(official: bool, covered: int) -> None:
    folds = numbered(48, official).folds(4, seed=1)
    tested = torch.cat([fold.test.x.flatten() for fold in folds])
    assert tested.sort().values.tolist() == list(range(covered))
    for fold in folds:
        together = torch.cat([fold.train.x, fold.test.x]).flatten()
        assert together.sort().values.tolist() == list(range(covered))
        assert fold.test.y.bincount().tolist() == [covered // 12] * 3
        torch.testing.assert_close(fold.mean, fold.train.x.mean().view(1))


def test_one_fold_of_many() -> None:
    task = numbered(48, False)
    for number, fold in enumerate(task.folds(4, seed=1)):
        assert torch.equal(task.fold(number, 4, seed=1).test.x, fold.test.x)


def test_folds_are_made_by_the_seed() -> None:
    first, again, other = (numbered(48, False).folds(4, seed)[0].test.x for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_split_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="expected as many labels"):
        Split(torch.zeros(3, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="expected as many labels"):
        Split(torch.zeros(3, 2), torch.zeros(3), torch.zeros(2, 5))


def test_statistics_of_large_values() -> None:
    """In double precision: the variance does not drown in the mean."""
    x = 1e4 + torch.randn(5000, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    mean, std = statistics(x)
    torch.testing.assert_close(mean, x.double().mean((0, 2, 3)).float())
    torch.testing.assert_close(std, x.double().std((0, 2, 3), correction=0).float())


def test_digits() -> None:
    task = load("digits")
    assert task.train.x.shape[1:] == task.input_shape == (1, 8, 8)
    assert (task.train.x.min(), task.train.x.max()) == (0, 1)
    assert len(task.train) + len(task.test) == 1797
    assert task.test.y.bincount().min() > 30
    other = load("digits", seed=1)
    assert not torch.equal(task.test.y, other.test.y)
    assert torch.equal(task.test.x, load("digits").test.x)


def test_subpopulations() -> None:
    task = load("subpopulations", train_size=4000, test_size=4000, minority=0.1)
    sign = 2 * task.train.y - 1
    agrees = task.train.x[:, 10].sign() == sign
    assert agrees.sum() == 3600
    assert torch.equal(task.train.groups.int().sum(1), torch.ones(4000, dtype=torch.int32))
    assert torch.equal(task.train.groups[:, 1], (task.train.y == 0) & ~agrees)
    # The ten core dimensions tell the class: Φ(1) = 84.13 %, with a standard error of 0.6 %.
    right = (task.test.x[:, :10].sum(1).sign() == 2 * task.test.y - 1).float().mean()
    assert abs(right - 0.8413) < 0.03
    assert (task.test.groups[:, 1] | task.test.groups[:, 3]).float().mean() == 0.5
    assert torch.equal(task.train.x, load("subpopulations", train_size=4000, test_size=4000, minority=0.1).train.x)
    with pytest.raises(ValueError, match="expected minority to be a fraction"):
        load("subpopulations", minority=2)


def test_sources(folder: Path) -> None:
    found = {source.name: source for source in sources()}
    at_hand = [name for name, source in found.items() if source.at_hand]
    assert at_hand == ["digits", "subpopulations", "stripes", "regular_graphs"]
    assert "MUTAG/raw/MUTAG_A.txt" in found["mutag"].where
    assert str(folder) in found["mutag"].where
    assert all(source.how for source in found.values() if not source.at_hand)
    (folder / "cifar-100-python").mkdir()
    assert next(source for source in sources() if source.name == "cifar100").where == str(folder / "cifar-100-python")


@pytest.mark.parametrize("name", [source.name for source in sources() if source.how])
def test_every_missing_set_says_what_to_do(folder: Path, name: str) -> None:
    how = next(source.how for source in sources() if source.name == name)
    with pytest.raises(DataError) as error:
        load(name)
    assert how in str(error.value)
    assert str(folder) in str(error.value)


def test_unknown_names_and_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        load("cifar_10")
    with pytest.raises(DataError, match="'digits' has no option 'size'; it has test_share, seed"):
        load("digits", size=3)
    with pytest.raises(ValueError, match="expected a size from 10 to"):
        load("digits", test_share=0.001)
    with pytest.raises(ValueError, match="test_share between 0 and 1"):
        load("digits", test_share=1.0)
    with pytest.raises(ValueError, match="train_size to be a whole number from 2"):
        load("subpopulations", train_size=0)
    monkeypatch.setenv("GEONORM_DATA", str(folder / "nowhere"))
    with pytest.raises(DataError, match=r"GEONORM_DATA names .*nowhere, which is not a folder"):
        load("mutag")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        ImportError, match=r"scikit-learn is needed here but not installed: pip install 'geonorm\[lab\]'"
    ):
        load("digits")
