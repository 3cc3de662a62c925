"""The parts of POP-Norm alone, exchanged and replaced, beside BatchNorm and no normalization."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..recipe import Recipe
from .page import Block, Chart, Page, Table, spread
from .popnorm import (
    ACTIVATIONS,
    ANEW,
    LAPTOP,
    PAPER,
    RUNNING,
    SCALED_DOWN,
    final_train_accuracy,
    loss_line,
    losses,
    seeds_of,
)
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import Verdict, below, better, level

LOW, MIDDLE, HIGH = 0.00005, 0.005, 0.1


class Arm(NamedTuple):
    """One training of the ablation: the norm, where it stands, and at which rate the paper trains it."""

    norm: str
    rate: float = HIGH
    place: str = ""


NONE, MEAN, DIVISION, BOTH, BATCH = "no normalization", "mean removal", "division by l2", "POP-Norm", "BatchNorm"
ARMS = {
    NONE: Arm("none", LOW),
    MEAN: Arm("pop(scale=false)", MIDDLE),
    DIVISION: Arm("pop(center=false)"),
    BOTH: Arm("pop"),
    "POP-Norm, division by l1": Arm("pop(spread=mean_abs)"),
    "POP-Norm, division by l∞": Arm("pop(spread=max_abs)"),
    "POP-Norm, division first": Arm("pop(order=scale_first)"),
    "POP-Norm behind the convolution": Arm("pop", place="behind"),
    BATCH: Arm("bn"),
}
RATES = (LOW, MIDDLE, HIGH)
ALONE = (NONE, MEAN, DIVISION)  # said not to train under sigmoid, whatever the rate
_LEARNS = 15.0  # per cent of the training samples right, of ten classes: more than chance


def plan(preset: str) -> dict[str, Recipe]:
    """By activation, place and rate: those norms that share them."""
    base = replace(PAPER, seeds=(0, 1, 2)) if preset == "paper" else LAPTOP
    parts: dict[str, Recipe] = {}
    for activation in ACTIVATIONS:
        for arm in _arms(activation):
            part = _part(activation, arm)
            norms = parts[part].norms if part in parts else ()
            options = {**base.model_options, "activation": activation}
            if arm.place:
                options["place"] = arm.place
            parts[part] = replace(base, norms=(*norms, arm.norm), lr=arm.rate, model_options=options)
    return parts


def _arms(activation: str) -> list[Arm]:
    others = [ARMS[name]._replace(rate=rate) for name in ALONE for rate in RATES] if activation == "sigmoid" else []
    return list(dict.fromkeys([*ARMS.values(), *others]))


def _part(activation: str, arm: Arm) -> str:
    return f"{activation}, rate {arm.rate:g}" + (f", {arm.place}" if arm.place else "")


def read(results: Results) -> Page:
    """Losses of all arms, those of the single parts under sigmoid, and verdicts."""
    rows, panels, others = [], {}, []
    for activation, name in ACTIVATIONS.items():
        shown = []
        for label, arm in ARMS.items():
            row = _row(results, activation, arm)
            if row:
                rows.append([name, label, f"{arm.rate:g}", *row])
                shown.append(loss_line(label, results.of(_part(activation, arm), norm=arm.norm)))
        if shown:
            panels[name] = shown
    for label in ALONE:
        for rate in RATES:
            row = _row(results, "sigmoid", ARMS[label]._replace(rate=rate))
            if row:
                others.append([label, f"{rate:g}", *row])
    figures = ["final training loss", "training accuracy, %", "test accuracy, %", "with statistics measured anew, %"]
    blocks: list[Block] = [Table("All arms", ["activation", "arm", "rate", *figures], rows, seeds_of(results.records))]
    blocks.append(Table("Single parts under sigmoid, at three rates", ["arm", "rate", *figures], others))
    if panels:
        blocks.append(Chart("loss", "Training loss", "epoch", "loss", panels))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _row(results: Results, activation: str, arm: Arm) -> list[str]:
    part, norm = _part(activation, arm), arm.norm
    if not results.of(part, norm=norm):
        return []
    return [
        spread(losses(results, part, norm), 3),
        spread(results.values(final_train_accuracy, part, norm=norm)),
        spread(results.values(accuracy(RUNNING), part, norm=norm)),
        spread(results.values(accuracy(ANEW), part, norm=norm)),
    ]


# Which arm the paper says to reach a lower loss than which other.
_FASTER = (
    ("tanh", MEAN, NONE),
    ("tanh", DIVISION, MEAN),
    ("tanh", BOTH, BATCH),
    ("relu", MEAN, NONE),
    ("relu", DIVISION, MEAN),
    ("sigmoid", BOTH, BATCH),
)


def _verdicts(results: Results) -> list[Verdict]:
    def loss(activation: str, label: str) -> dict[Pair, float]:
        return losses(results, _part(activation, ARMS[label]), ARMS[label].norm)

    found = []
    for activation, fast, slow in _FASTER:
        low, high = loss(activation, fast), loss(activation, slow)
        if low and high:
            claim = f"{ACTIVATIONS[activation]}: {fast} trains faster than {slow}"
            ours = f"loss {spread(low, 3)} against {spread(high, 3)}"
            found.append(Verdict(claim, "Figure 3", ours, *better(high, low)))
    batch, division = loss("relu", BATCH), loss("relu", DIVISION)
    if batch and division:
        ours = f"loss {spread(batch, 3)} against {spread(division, 3)}"
        claim = f"ReLU: {BATCH} is close to {DIVISION} alone"
        found.append(Verdict(claim, "Figure 3", ours, *level(batch, division, 0.1)))
    return found + _said_not_to_train(results)


def _said_not_to_train(results: Results) -> list[Verdict]:
    found = []
    for label in ALONE:
        for rate in RATES:
            arm = ARMS[label]._replace(rate=rate)
            right = results.values(final_train_accuracy, _part("sigmoid", arm), norm=arm.norm)
            if right:
                ours = f"{spread(right)} % of the training samples right"
                found.append(
                    Verdict(
                        f"Sigmoid: {label} does not train at the rate {rate:g}",
                        "Section 5.3",
                        ours,
                        *below(right, _LEARNS),
                    )
                )
    return found


_DIFFERS = f"""\
{SCALED_DOWN}
- Figure 3 shows training losses on CIFAR-100 without numbers. Rates are the paper's: 0.00005 without normalization,
  0.005 with mean removal alone, 0.1 otherwise; so a faster training may be the work of its rate. κ is 4.
- *Division first* is the paper's exchanged order; *behind the convolution* is the same POP-Norm, κ included, where
  BatchNorm stands. The paper shows neither of them, nor l1 and l∞.
- A training counts as one when more than {_LEARNS:g} % of the training samples are right; chance is 10 %. Differences
  behind those verdicts are to that figure."""

STUDY = Study(
    name="popnorm-ablation",
    line="The parts of POP-Norm alone, exchanged, behind the operation, with l1 and l∞; beside BatchNorm and no norm",
    source="POP-Norm, Figure 3 and Section 5.3",
    minutes={"laptop": 13},
    plan=plan,
    read=read,
    curves=("loss", "train_accuracy"),
)
