"""Test accuracy of POP-Norm and BatchNorm: two networks, three activations, two sets of images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from .page import Block, Chart, Page, Table, spread
from .popnorm import (
    ACTIVATIONS,
    EVERYWHERE,
    HE,
    LAPTOP,
    PAPER,
    RECOMPUTED,
    RUNNING,
    SCALED_DOWN,
    SHARED,
    loss_line,
    losses,
    mean_by_seed,
    seeds_of,
)
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import Answer, Verdict, above, better, explored

NETWORKS = {"vgg16": "VGG-16", "resnet20": "ResNet-20"}
SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
SMALL = {"vgg16": {"width": 0.125, "depth": 0.3}, "resnet20": {"width": 0.5, "depth": 0.34}}
BATCH, POP = "bn", "pop"
PUBLISHED = {  # test accuracy of BatchNorm and of POP-Norm, 10 trainings each
    ("cifar10", "vgg16", "sigmoid"): ("84.21 ± 0.46", "90.69 ± 0.15"),
    ("cifar10", "vgg16", "tanh"): ("88.69 ± 0.15", "90.63 ± 0.09"),
    ("cifar10", "vgg16", "relu"): ("90.89 ± 0.13", "92.15 ± 0.11"),
    ("cifar10", "resnet20", "sigmoid"): ("83.08 ± 0.14", "89.68 ± 0.14"),
    ("cifar10", "resnet20", "tanh"): ("88.08 ± 0.11", "89.63 ± 0.09"),
    ("cifar10", "resnet20", "relu"): ("90.23 ± 0.13", "90.90 ± 0.12"),
    ("cifar100", "vgg16", "sigmoid"): ("62.49 ± 0.56", "70.29 ± 0.14"),
    ("cifar100", "vgg16", "tanh"): ("66.63 ± 0.12", "70.59 ± 0.09"),
    ("cifar100", "vgg16", "relu"): ("70.83 ± 0.25", "71.38 ± 0.12"),
    ("cifar100", "resnet20", "sigmoid"): ("54.10 ± 0.37", "66.91 ± 0.32"),
    ("cifar100", "resnet20", "tanh"): ("62.42 ± 0.36", "67.02 ± 0.10"),
    ("cifar100", "resnet20", "relu"): ("66.70 ± 0.16", "67.53 ± 0.12"),
}


# Smallest effects of interest in points of accuracy, from the paper's words and Table 1.
_HIGHER = 1.5  # half of "average more than 3%"
_GAINS_MORE = {"sigmoid": 3.8, "tanh": 1.1}  # half of the mean gain less that with ReLU: 8.4 and 3.0 less 0.8
# Up to 1.5 points below ReLU are called "fairly close", from 2.2 on "heavily discounted": the bound is between them.
_CLOSE = 2.0
_DISCOUNTED = {"sigmoid": 4.3, "tanh": 1.6}  # half of the mean distance from ReLU under BatchNorm: 8.7 and 3.2


def plan(preset: str) -> dict[str, StudyRecipe]:
    """By set, network and activation."""
    parts = {}
    for data, network, activation in PUBLISHED:
        if preset == "paper":
            recipe = replace(
                PAPER, data=data, seeds=tuple(range(10)), model_options={**EVERYWHERE, "activation": activation}
            )
        else:
            small = "cifar100_subset" if data == "cifar100" else data
            recipe = replace(
                LAPTOP, data=small, model_options={**EVERYWHERE, **SMALL[network], "activation": activation}
            )
        scale = HE if network == "vgg16" else 1.0  # the ResNet's initial weights already have that size
        parts[_part(data, network, activation)] = replace(recipe, model=network, weight_scale=scale)
    return parts


def _part(data: str, network: str, activation: str) -> str:
    return f"{data}, {network}, {activation}"


def _named(preset: str, data: str, network: str, activation: str) -> list[str]:
    """A setting in words; the networks of the laptop preset are called small."""
    return [SETS[data], f"{'' if preset == 'paper' else 'small '}{NETWORKS[network]}", ACTIVATIONS[activation]]


def read(results: Results) -> Page:
    """The table with published figures and ours, losses, and verdicts."""
    rows, panels = [], {}
    for (data, network, activation), published in PUBLISHED.items():
        part = _part(data, network, activation)
        if not results.of(part):
            continue
        names = _named(results.preset, data, network, activation)
        for label, norm, theirs in (("BatchNorm", BATCH, published[0]), ("POP-Norm", POP, published[1])):
            figures = [spread(results.values(accuracy(how), part, norm=norm)) for how in (RUNNING, RECOMPUTED)]
            rows.append([*names, label, theirs, *figures, spread(losses(results, part, norm), 3)])
        panels[", ".join(names)] = [
            loss_line(label, results.of(part, norm=norm)) for label, norm in (("BatchNorm", BATCH), ("POP-Norm", POP))
        ]
    heads = [
        "set",
        "network",
        "activation",
        "norm",
        "published",
        "ours",
        "ours, statistics recomputed",
        "final loss",
    ]
    blocks: list[Block] = [Table("Test accuracy, %", heads, rows, seeds_of(results.records))]
    if panels:
        blocks.append(Chart("loss", "Training loss", "epoch", "loss", panels))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _verdicts(results: Results) -> list[Verdict]:
    """Verdicts on the mean over settings for each seed, then every setting without one."""

    def mean(norm: str, *activations: str) -> dict[Pair, float]:
        parts = [_part(*key) for key in PUBLISHED if key[2] in activations]
        return mean_by_seed([results.values(accuracy(RUNNING), part, norm=norm) for part in parts])

    found = []
    batch, pop = (mean(norm, *ACTIVATIONS) for norm in (BATCH, POP))
    if batch and pop:
        claim = "POP-Norm is more accurate than BatchNorm, mean of all settings"
        found.append(Verdict(claim, _published(ACTIVATIONS), _against(pop, batch), *better(pop, batch, _HIGHER)))
    gain = {activation: _minus(mean(POP, activation), mean(BATCH, activation)) for activation in ACTIVATIONS}
    to_relu = {
        (norm, activation): _minus(mean(norm, activation), mean(norm, "relu"))
        for norm in (BATCH, POP)
        for activation in ("sigmoid", "tanh")
    }
    for activation, least in _GAINS_MORE.items():
        one, other = gain[activation], gain["relu"]
        if one and other:
            claim = f"{ACTIVATIONS[activation]}: the gain of POP-Norm over BatchNorm is larger than with ReLU"
            found.append(Verdict(claim, _gains(activation), _against(one, other), *better(one, other, least)))
    for activation in ("sigmoid", "tanh"):
        below = to_relu[POP, activation]
        if below:
            claim = f"{ACTIVATIONS[activation]} with POP-Norm is at most {_CLOSE:g} points below ReLU with it"
            published = f"{_from_relu(1, activation):+.1f}"
            found.append(Verdict(claim, published, spread(below), *above(below, -_CLOSE)))
    for activation, least in _DISCOUNTED.items():
        below = to_relu[BATCH, activation]
        if below:
            claim = f"{ACTIVATIONS[activation]} with BatchNorm is less accurate than ReLU with it"
            published = f"{_from_relu(0, activation):+.1f}"
            lower: Answer = better(dict.fromkeys(below, 0.0), below, least)
            found.append(Verdict(claim, published, spread(below), *lower))
    return found + _settings(results)


def _settings(results: Results) -> list[Verdict]:
    """Each of the twelve settings of Table 1, without a verdict."""
    found = []
    for (data, network, activation), (batch, pop) in PUBLISHED.items():
        part = _part(data, network, activation)
        ours = {norm: results.values(accuracy(RUNNING), part, norm=norm) for norm in (BATCH, POP)}
        if all(ours.values()):
            where = ", ".join(_named(results.preset, data, network, activation))
            claim = f"{where}: POP-Norm is more accurate than BatchNorm"
            answer = explored(better(ours[POP], ours[BATCH], _HIGHER))
            found.append(Verdict(claim, f"{pop} against {batch}", _against(ours[POP], ours[BATCH]), *answer))
    return found


def _minus(one: dict[Pair, float], other: dict[Pair, float]) -> dict[Pair, float]:
    return {pair: one[pair] - other[pair] for pair in one if pair in other}


def _against(one: dict[Pair, float], other: dict[Pair, float]) -> str:
    return f"{spread(one)} against {spread(other)}"


def _table(which: int, activations: Iterable[str]) -> float:
    """The mean of Table 1 over its settings with these activations: of BatchNorm (0) or POP-Norm (1)."""
    return fmean(float(PUBLISHED[key][which].split()[0]) for key in PUBLISHED if key[2] in activations)


def _published(activations: Iterable[str]) -> str:
    chosen = tuple(activations)
    return f"{_table(1, chosen):.2f} against {_table(0, chosen):.2f}"


def _gains(activation: str) -> str:
    one, other = (_table(1, [name]) - _table(0, [name]) for name in (activation, "relu"))
    return f"{one:.1f} against {other:.1f}"


def _from_relu(which: int, activation: str) -> float:
    return _table(which, [activation]) - _table(which, ["relu"])


_DIFFERS = f"""\
{SCALED_DOWN}
- ResNet-20 is replaced by one with a block per stage and half the channels, CIFAR-100 by a subset of
  10,000 training and 4,000 test images of its 100 classes. These accuracies are not comparable with the published ones;
  look at the differences between norms.
- The paper speaks of both networks and both sets at once, so a verdict is on their mean for each seed; the twelve
  settings of Table 1 are shown without one. *The classification accuracy for POP-Norm is consistently higher* is
  tested as: higher on average.
- Least differences of interest are half of those in Table 1, or in its words. *Fairly close* is said of means of up to
  1.5 points below ReLU, *heavily discounted* of 2.2 points and more; we test whether sigmoid and tanh stay within 2.
- Accuracies are those with running statistics, as usual. *Statistics recomputed*: on the training images, after the
  training; without a verdict.
{SHARED}"""

STUDY = Study(
    name="popnorm-accuracy",
    line="VGG-16 and ResNet-20 with sigmoid, tanh and ReLU on CIFAR-10 and CIFAR-100: POP-Norm against BatchNorm",
    source="POP-Norm, Table 1",
    minutes={"laptop": 30},
    plan=plan,
    read=read,
    curves=("loss", "train_accuracy"),
)
