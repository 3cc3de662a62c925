"""Planted faults in data: a share of the samples is broken, and ``geonorm.screen`` is asked which ones.

``python benchmarks/screening.py`` writes ``screening.csv`` beside it and the tables of ``docs/guide/screen.md``. It
trains a small convolutional network on CIFAR-10 (in ``$GEONORM_DATA``) and an MLP on digits, on one thread in about ten
minutes.
"""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import geonorm
from geonorm.lab.data import load
from geonorm.robust import Screening, Standardize

STORE = Path(__file__).with_name("screening.csv")
PAGE = Path(__file__).parents[1] / "docs" / "guide" / "screen.md"
SHARES = (0.01, 0.05, 0.1, 0.2)
CLEAN = "none"

Break = Callable[[Tensor, torch.Generator], Tensor]


def _noise(size: float) -> Break:
    return lambda x, g: x + size * torch.randn(x.shape, generator=g)


def _set(value: float, *place: int | slice) -> Break:
    def plant(x: Tensor, g: torch.Generator) -> Tensor:
        x = x.clone()
        x[(slice(None), *place)] = value
        return x

    return plant


def _shuffled(x: Tensor, g: torch.Generator) -> Tensor:
    return x.flatten(2)[:, :, torch.randperm(x[0, 0].numel(), generator=g)].view_as(x)


def _cauchy(x: Tensor, g: torch.Generator) -> Tensor:
    return x + 0.25 * torch.empty_like(x).cauchy_(generator=g)


IMAGES: dict[str, Break] = {
    "unscaled, ×255": lambda x, g: 255 * x,
    "gain ×20": lambda x, g: 20 * x,
    "gain ×4": lambda x, g: 4 * x,
    "offset +10": lambda x, g: x + 10,
    "offset +1": lambda x, g: x + 1,
    "noise, σ = 1": _noise(1.0),
    "noise, σ = 0.2": _noise(0.2),
    "Cauchy noise": _cauchy,
    "random bytes": lambda x, g: torch.randint(256, x.shape, generator=g) / 255,
    "black frame": _set(0.0),
    "white frame": _set(1.0),
    "one channel saturated": _set(1.0, 0),
    "one NaN": _set(float("nan"), 0, 3, 3),
    "one Inf": _set(float("inf"), 0, 3, 3),
    "contrast ×0.05": lambda x, g: 0.5 + 0.05 * (x - 0.5),
    "pixels shuffled": _shuffled,
    "lower half black": _set(0.0, slice(None), slice(16, None)),
    "negative": lambda x, g: 1 - x,
    "upside down": lambda x, g: x.flip(2),
}
TABLES: dict[str, Break] = {
    "unscaled, ×255": lambda x, g: 255 * x,
    "gain ×20": lambda x, g: 20 * x,
    "offset +10": lambda x, g: x + 10,
    "offset +1": lambda x, g: x + 1,
    "noise, σ = 1": _noise(1.0),
    "Cauchy noise": _cauchy,
    "all zeros": _set(0.0),
    "all ones": _set(1.0),
    "one feature is 100": _set(100.0, 20),
    "one feature is 5": _set(5.0, 20),
    "one feature is 0": _set(0.0, 20),
    "one NaN": _set(float("nan"), 20),
    "one Inf": _set(float("inf"), 20),
    "negative": lambda x, g: 1 - x,
}


class Outcome(NamedTuple):
    """One data set with one kind of fault, and how many of its samples were named."""

    data: str
    fault: str
    share: float
    samples: int
    planted: int
    named: int
    right: int
    why: str


def conv_net(mean: Tensor, std: Tensor) -> nn.Module:
    widths = (3, 16, 32, 64)
    layers: list[nn.Module] = [Standardize(mean.tolist(), std.tolist())]
    for before, after in itertools.pairwise(widths):
        stride = 1 if before == 3 else 2
        layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def mlp() -> nn.Module:
    layers = [nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(64):
            if len(chosen) > 1:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
    return model


def cifar() -> tuple[nn.Module, Tensor]:
    """A network after five epochs on 10,000 training images, and all test images."""
    torch.manual_seed(0)
    task = load("cifar10", train_size=10_000)
    assert task.mean is not None
    assert task.std is not None
    return train(conv_net(task.mean, task.std), task.train.tensor(), task.train.y, 5), task.test.tensor()


def digits() -> tuple[nn.Module, Tensor]:
    """A network after ten epochs on the training digits, and all digits as rows of a table."""
    torch.manual_seed(0)
    task = load("digits")
    model = train(mlp(), task.train.tensor().flatten(1), task.train.y, 10)
    return model, torch.cat([task.train.tensor(), task.test.tensor()]).flatten(1)


def look(model: nn.Module, x: Tensor) -> Screening:
    return geonorm.screen(model, list(x.split(250)))


def ask(data: str, model: nn.Module, x: Tensor, fault: str, plant: Break | None, share: float) -> Outcome:
    generator = torch.Generator().manual_seed(1)
    chosen = torch.randperm(len(x), generator=generator)[: round(share * len(x))]
    if plant is not None:
        x = x.clone()
        x[chosen] = plant(x[chosen], generator)
    planted = set(chosen.tolist())
    found = look(model, x)
    right = [one for one in found.broken if one.index in planted]
    why = Counter(one.why for one in right).most_common(1)
    return Outcome(data, fault, share, len(x), len(planted), len(found.broken), len(right), why[0][0] if why else "")


def main() -> None:
    torch.set_num_threads(1)
    outcomes = []
    for data, make, kinds in (("CIFAR-10", cifar, IMAGES), ("digits", digits, TABLES)):
        model, x = make()
        outcomes.append(ask(data, model, x, CLEAN, None, 0.0))
        print(outcomes[-1], flush=True)
        for fault, plant in kinds.items():
            for share in SHARES:
                outcomes.append(ask(data, model, x, fault, plant, share))
                print(outcomes[-1], flush=True)
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Outcome._fields)
        writer.writerows(outcomes)


if __name__ == "__main__":
    main()
