"""Models and data of one's own: what is accepted, what is refused in words, and the same chance for every norm."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from geonorm.lab import Comparison, compare
from geonorm.lab.runner import RunsFailed


def broken_model() -> nn.Module:
    raise ValueError("no such model today")


def little_data() -> tuple[TensorDataset, TensorDataset]:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    samples = TensorDataset(x, (x[:, 0] > 0).long())
    return samples, samples


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    train, test = little_data()
    return DataLoader(train, 16, shuffle=True), DataLoader(test, 30)


def little_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_a_run_that_fails_is_named_and_can_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(RunsFailed, match=r"2 of 2 runs failed.*no such model today"):
        compare(broken_model, little_data, ["own", "ln"], seeds=1, epochs=1, store=tmp_path / "r.sqlite")


def test_own_model_and_data(tmp_path: Path) -> None:
    found = compare(
        little_model,
        little_data,
        ["own", "robustbn", "pop"],
        seeds=2,
        epochs=3,
        batch_size=20,
        store=tmp_path / "r.sqlite",
    )
    assert len(found.finished()) == 6
    assert [line.split()[0] for line in found.table().splitlines()[2:]] == ["own", "robustbn", "pop"]
    assert all(len(curve) == 3 for curve in found.curves().values())


def test_own_loaders(tmp_path: Path) -> None:
    found = compare(little_model, loaders, ["augbn(phi=1.5)"], seeds=[3], epochs=1, store=tmp_path / "r.sqlite")
    assert len(found.finished()) == 1


def test_data_that_is_no_pair(tmp_path: Path) -> None:
    with pytest.raises(RunsFailed, match=r"expected .*<lambda> to return \(train, test\) or a Task \(got int\)"):
        compare(little_model, lambda: 3, ["bn"], seeds=1, epochs=1, store=tmp_path / "r.sqlite")


X = torch.randn(65, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def small(folder: Path, make_model: Any, make_data: Any, norms: Any = ("bn",), **training: Any) -> Comparison:
    options = {"seeds": 1, "epochs": 1, "batch_size": 16, **training}
    return compare(make_model, make_data, norms, store=folder / "r.sqlite", **options)


def test_a_norm_that_cannot_be_put_in_is_no_result(tmp_path: Path) -> None:
    """Not the model as it was, under another name."""
    with pytest.raises(RunsFailed, match="cannot convert the model to 'ln': ln needs a different input layout"):
        small(tmp_path, little_model, little_data, ["bn", "ln"])
    with pytest.raises(RunsFailed, match="expected a model with norms to replace by 'augbn'"):
        small(tmp_path, lambda: nn.Linear(2, 2), little_data, "augbn")


def test_a_norm_of_a_study(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the norm 'newton' is of a study: geonorm reproduce carries it out"):
        small(tmp_path, little_model, little_data, ["bn", "newton"])
    assert not (tmp_path / "r.sqlite").exists(), "nothing was begun"


def wide(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


def test_other_functions_are_other_runs(tmp_path: Path) -> None:
    models = [
        functools.partial(wide, 2),
        functools.partial(wide, 64),
        lambda: wide(3),
        lambda: wide(5),
        little_model,
    ]
    keys = {small(tmp_path, model, little_data).finished()[0].key for model in models}
    assert len(keys) == 5
    assert small(tmp_path, functools.partial(wide, 2), little_data).runs[0].key in keys


def test_a_changed_function_is_another_run(tmp_path: Path) -> None:
    """As in a notebook, where the cell was edited: one name, another text."""
    keys = []
    for width in (4, 8):
        file = tmp_path / f"cell_{width}.py"
        text = (
            f"from torch import nn\ndef make():\n    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) # {width}"
        )
        file.write_text(text)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, str(file), "exec"), names)
        keys.append(small(tmp_path, names["make"], little_data).runs[0].key)
    assert keys[0] != keys[1]


def shuffled_by_numpy() -> tuple[TensorDataset, TensorDataset]:
    order = np.random.permutation(65)
    samples = TensorDataset(X[order], Y[order])
    return samples, samples


def shuffled_by_python() -> tuple[TensorDataset, TensorDataset]:
    order = random.sample(range(65), 65)
    samples = TensorDataset(X[order], Y[order])
    return samples, samples


@pytest.mark.parametrize("make_data", [loaders, shuffled_by_numpy, shuffled_by_python])
def test_every_norm_gets_the_same_samples(tmp_path: Path, make_data: Callable[[], Any]) -> None:
    """In the same order, by whatever chance they were shuffled: augbn(phi=2) is BatchNorm."""
    found = small(tmp_path, little_model, make_data, ["bn", "augbn(phi=2)"], epochs=2)
    first, second = (curve[-1]["loss"] for curve in found.curves().values())
    assert first == pytest.approx(second, rel=1e-5)
    again = small(tmp_path / "again", little_model, make_data, epochs=2)
    assert next(iter(again.curves().values()))[-1]["loss"] == first


def test_a_model_that_is_always_the_same(tmp_path: Path) -> None:
    model = little_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = small(tmp_path, lambda: model, little_data, ["bn", "augbn(phi=2)"])
    first, second = (curve[-1]["loss"] for curve in found.curves().values())
    assert first == pytest.approx(second, rel=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_batches_of_one(tmp_path: Path) -> None:
    """They train where the norm allows it, and are an error where it does not; never an epoch without a step."""
    (one,) = small(tmp_path, lambda: wide(8), little_data, "gn(groups=1)", batch_size=1).curves().values()
    assert one[0]["loss"] > 0
    with pytest.raises(RunsFailed, match="more than 1 value per channel"):
        small(tmp_path, little_model, little_data, batch_size=1)


def test_a_run_that_diverges_is_kept_and_right_nowhere(tmp_path: Path) -> None:
    (one,) = small(tmp_path, little_model, little_data, lr=1e30, epochs=3).finished()
    assert one.figures["clean"] == {"accuracy": 0.0, "correct": 0, "total": 60}


class Words(nn.Module):
    """Takes whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.embedding(x).mean(1)))
        return scores


def words() -> tuple[TensorDataset, TensorDataset]:
    samples = TensorDataset(torch.randint(0, 10, (65, 3)), Y)
    return samples, samples


class Arrays(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> Any:
        return X[i].numpy(), np.int64(Y[i])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(X[i], Y[i]) for i in range(20)])


@pytest.mark.parametrize(
    ("make_model", "make_data"),
    [
        (Words, words),
        (little_model, lambda: (Arrays(), Arrays())),
        (little_model, lambda: (Stream(), Stream())),
        (little_model, lambda: (part for part in little_data())),
        (little_model, lambda: [((X[i : i + 8], Y[i : i + 8]) for i in range(0, 65, 8)) for _ in range(2)]),
        (lambda: little_model().double(), lambda: [TensorDataset(X.double(), Y.bool())] * 2),
    ],
    ids=["words", "numpy", "stream", "generator", "generators of batches", "double"],
)
def test_accepted(tmp_path: Path, make_model: Any, make_data: Any) -> None:
    assert small(tmp_path, make_model, make_data).finished()


class Pictures(Arrays):
    def __getitem__(self, i: int) -> Any:
        return pytest.importorskip("PIL.Image").new("RGB", (4, 4)), 0


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = little_model()

    def forward(self, x: Tensor) -> Any:
        return self.inside(x), x


def both(x: Any, y: Any) -> Any:
    return lambda: [TensorDataset(x, y)] * 2


@pytest.mark.parametrize(
    ("make_model", "make_data", "training", "message"),
    [
        (Two, little_data, {}, r"returns scores of shape \(N, classes\) \(got tuple\); wrap it"),
        (lambda: 3, little_data, {}, r"make_model to return a torch.nn.Module \(got int\)"),
        (little_model, lambda: (Pictures(), Pictures()), {}, r"\(got Image\); turn them into tensors"),
        (little_model, lambda: ((X, Y), (X, Y)), {}, r"got two tensors\); make TensorDataset"),
        (little_model, lambda: ([{"x": X}], [{"x": X}]), {}, r"pairs of input and label \(got dict\)"),
        (little_model, lambda: (3, 4), {}, r"train to be a dataset or a loader \(got int\)"),
        (little_model, both(X[:0], Y[:0]), {}, "expected samples in train"),
        (little_model, lambda: ([(X, Y), (X[:, :1], Y)],) * 2, {}, "inputs of one shape in train"),
        (little_model, both(X, X[:, 0]), {}, r"class numbers as labels .*regression"),
        (little_model, lambda: [DataLoader(TensorDataset(X, X[:, 0]), 8)] * 2, {}, r"class numbers as labels"),
        (little_model, both(X, nn.functional.one_hot(Y)), {}, r"shape \(65, 2\)\); for one-hot labels take argmax"),
        (little_model, both(X, 2 * Y - 1), {}, r"labels from 0 in train \(got -1\)"),
        (little_model, both(X, Y + 1), {}, r"labels from 0 to 1, for 2 classes \(got 1 to 2\)"),
        (Words, words, {"evaluations": ["noise(std=0.1)"]}, r"floating-point inputs for the evaluation 'noise'"),
        (Words, words, {"corruptions": ["offset"]}, r"floating-point samples for 'offset'"),
        (
            little_model,
            little_data,
            {"evaluations": ["fgsm(eps=0.1)"]},
            r"inputs from 0 to 1 for the evaluation 'fgsm'",
        ),
        (little_model, little_data, {"evaluations": ["blur(severity=1)"]}, r"images for the evaluation 'blur'"),
    ],
)
def test_refused(tmp_path: Path, make_model: Any, make_data: Any, training: dict[str, Any], message: str) -> None:
    epochs: list[int] = []
    with pytest.raises(RunsFailed, match=message):
        small(tmp_path, make_model, make_data, watch=lambda one, epoch, figures: epochs.append(epoch), **training)
    assert not epochs, "before the training, not after it"


@pytest.mark.slow
def test_workers_of_a_script_without_a_guard(tmp_path: Path) -> None:
    """Each of them would start the script again, and workers of its own."""
    (tmp_path / "script.py").write_text(
        "from geonorm.lab import Recipe, run\n"
        "run(Recipe(norms=['bn'], seeds=[0, 1], epochs=1), 'r.sqlite', workers=2)\n"
    )
    found = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "a script that starts workers must do so below if __name__ == '__main__':" in found.stderr.splitlines()[-1]
