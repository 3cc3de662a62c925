"""Planted faults in data: some samples are broken, and ``geonorm.screen`` has to find them.

``python -m benchmarks.screening`` writes ``screening.csv`` and the tables of ``docs/guide/screen.md``. It
trains a small convolutional network on CIFAR-10 and MLPs on digits, COMPAS and Adult (in ``$GEONORM_DATA``), on one
thread in about ten minutes.
"""

from __future__ import annotations

import csv
import itertools
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import geonorm
from benchmarks.pages import put
from geonorm.lab.data import load
from geonorm.robust import Screening, Standardize

STORE = Path(__file__).with_name("screening.csv")
PAGE = Path(__file__).parents[1] / "docs" / "guide" / "screen.md"
SHARES = (0.01, 0.05, 0.1, 0.2)
CLEAN = "none"
SHOWN = ("unscaled, ×255", "offset +1", "random bytes", "black frame", "one channel saturated", "one NaN")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "screen.png"
ADULT = "have a capital gain of 99999"

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
    """One data set with one kind of fault, and how many of its samples were reported."""

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


def mlp(features: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before in (features, 64):
        layers += [nn.Linear(before, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, classes))


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(64):
            if len(chosen) > 1:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
    return model


def cifar() -> tuple[nn.Module, Tensor, Tensor]:
    """A network after five epochs on 10,000 training images; all test images, and all training images."""
    torch.manual_seed(0)
    task = load("cifar10")
    assert task.mean is not None
    assert task.std is not None
    x, y = task.train.tensor(), task.train.y
    some = torch.randperm(len(x))[:10_000]
    return train(conv_net(task.mean, task.std), x[some], y[some], 5), task.test.tensor(), x


def table_of(name: str, epochs: int) -> tuple[nn.Module, Tensor]:
    """A network after some epochs, and all samples as rows, training samples first; columns scaled, except digits."""
    torch.manual_seed(0)
    task = load(name)
    x = torch.cat([task.train.tensor(), task.test.tensor()]).flatten(1)
    if name != "digits":
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-6)
    return train(mlp(x.shape[1], task.classes), x[: len(task.train)], task.train.y, epochs), x


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


def ask_adult() -> Outcome:
    """Nothing is planted: 244 rows have a capital gain of 99999, far above all others."""
    model, x = table_of("adult", 2)
    task = load("adult")
    raw = torch.cat([task.train.tensor(), task.test.tensor()])
    coded = set((raw == 99999).any(1).nonzero().flatten().tolist())
    found = look(model, x)
    right = sum(index in coded for index in found.indices)
    return Outcome("Adult", ADULT, len(coded) / len(x), len(x), len(coded), len(found.broken), right, "")


def picture() -> None:
    """A screenshot of the page for some images with faults of several kinds, by Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium: the picture of the page is left as it is")
        return
    model, images, _ = cifar()
    x, generator = images[:2000].clone(), torch.Generator().manual_seed(0)
    for k, fault in enumerate(SHOWN):
        where = slice(250 * k, 250 * k + 5)
        x[where] = IMAGES[fault](x[where], generator)
    with tempfile.TemporaryDirectory() as folder:
        batches = list(x.split(250))
        page = geonorm.screen(model, batches).to_html(Path(folder) / "page.html", batches)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
        shot = f"--screenshot={PICTURE}"
        subprocess.run([chromium, *flags, "--window-size=1000,1250", shot, page.as_uri()], check=True)


def percent(part: int, whole: int) -> str:
    """A percentage without decimals, but 100 only if all are there and 0 only if none is."""
    if not whole:
        return "–"
    share = 100 * part / whole
    return f"{share:.0f}" if part in (0, whole) or 1 <= share <= 99 else f"{share:.1f}"


def faults_table(outcomes: list[Outcome], data: str) -> str:
    """Precision and recall for each fault and share, as Markdown."""
    lines = [
        "| fault | " + " | ".join(f"{share:.0%}" for share in SHARES) + " | reported as |",
        "| --- |" + " --- |" * 5,
    ]
    for fault in dict.fromkeys(o.fault for o in outcomes if o.data == data and o.share):
        own = [o for o in outcomes if (o.data, o.fault) == (data, fault)]
        cells = [f"{percent(o.right, o.named)} / {percent(o.right, o.planted)}" for o in own]
        lines.append(f"| {fault} | {' | '.join(cells)} | {max(own, key=lambda o: o.right).why or '**not found**'} |")
    return "\n".join(lines) + "\n"


def clean_table(outcomes: list[Outcome]) -> str:
    """How many samples are reported in data without planted faults, as Markdown."""
    lines = ["| unmodified data | samples | reported |", "| --- | --- | --- |"]
    lines += [f"| {o.data} | {o.samples:,} | {o.named:,} |" for o in outcomes if o.fault == CLEAN]
    for o in outcomes:
        if o.fault == ADULT:
            lines.append(f"| {o.data}, scaled | {o.samples:,} | {o.named:,}, of which {o.right:,} {o.fault} |")
    return "\n".join(lines) + "\n"


def stored() -> list[Outcome]:
    with STORE.open(newline="", encoding="utf-8") as file:
        rows = [Outcome(**row) for row in csv.DictReader(file)]
    numbers = ("samples", "planted", "named", "right")
    return [o._replace(share=float(o.share), **{name: int(getattr(o, name)) for name in numbers}) for o in rows]


def measure() -> list[Outcome]:
    net, images, training_images = cifar()
    torch.manual_seed(1)
    untrained = conv_net(torch.full((3,), 0.5), torch.full((3,), 0.25))
    digits_net, digits = table_of("digits", 10)
    outcomes = [
        ask("CIFAR-10, test images", net, images, CLEAN, None, 0.0),
        ask("CIFAR-10, test images, network not trained", untrained, images, CLEAN, None, 0.0),
        ask("CIFAR-10, training images", net, training_images, CLEAN, None, 0.0),
        ask("digits", digits_net, digits, CLEAN, None, 0.0),
        ask("COMPAS, scaled", *table_of("compas", 2), CLEAN, None, 0.0),
        ask_adult(),
    ]
    for data, model, x, kinds in (("CIFAR-10", net, images, IMAGES), ("digits", digits_net, digits, TABLES)):
        for fault, plant in kinds.items():
            outcomes += [ask(data, model, x, fault, plant, share) for share in SHARES]
            print(*outcomes[-len(SHARES) :], sep="\n", flush=True)
    return outcomes


def main() -> None:
    torch.set_num_threads(1)
    outcomes = measure()
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Outcome._fields)
        writer.writerows(outcomes)
    put(PAGE, "clean", clean_table(stored()))
    put(PAGE, "images", faults_table(stored(), "CIFAR-10"))
    put(PAGE, "tables", faults_table(stored(), "digits"))
    picture()


if __name__ == "__main__":
    main()
