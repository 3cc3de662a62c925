"""POP-Norm's divisor κ: training loss for κ = 1, 4 and 16, and what is left of κ when weights and rates imitate it."""

from __future__ import annotations

from dataclasses import replace

from ..recipe import Recipe
from .page import Block, Chart, Page, Table, spread
from .popnorm import (
    ACTIVATIONS,
    ANEW,
    HE,
    LAPTOP,
    PAPER,
    RUNNING,
    SCALED_DOWN,
    loss_line,
    losses,
    pooled,
    seeds_of,
)
from .results import Results, accuracy
from .study import Study
from .verdicts import Verdict, better, level

KAPPAS = (1, 4, 16)
ONE = "pop(kappa=1)"
SMALLER = "sigmoid, torch's first weights"
_SAME = 0.01  # of a loss: curves closer than this are one curve


def plan(preset: str) -> dict[str, Recipe]:
    """By activation: all κ; then κ = 1 with weights and rates that imitate a larger one, in two ways."""
    base = replace(PAPER, seeds=(0, 1, 2)) if preset == "paper" else LAPTOP
    parts = {}
    for activation in ACTIVATIONS:
        own = replace(base, model_options={**base.model_options, "activation": activation})
        parts[activation] = replace(own, norms=tuple(_spec(kappa) for kappa in KAPPAS))
        one = replace(own, norms=(ONE,))
        for kappa in KAPPAS[1:]:
            parts[_imitated(activation, kappa)] = replace(one, weights_as_kappa=kappa)
            parts[_all_scaled(activation, kappa)] = replace(one, weight_scale=HE / kappa, lr=base.lr / kappa**2)
    parts[SMALLER] = replace(parts["sigmoid"], weight_scale=1.0)
    return parts


def _spec(kappa: int) -> str:
    return f"pop(kappa={kappa})"


def _imitated(activation: str, kappa: int) -> str:
    return f"{activation}, weights as if κ={kappa}"


def _all_scaled(activation: str, kappa: int) -> str:
    return f"{activation}, everything as if κ={kappa}"


def read(results: Results) -> Page:
    """Losses by κ and activation, the imitations, and verdicts."""
    rows, panels = [], {}
    for activation, name in ACTIVATIONS.items():
        arms = [(f"κ={kappa}", activation, _spec(kappa)) for kappa in KAPPAS]
        for kappa in KAPPAS[1:]:
            arms.append((f"κ=1, weights behind POP-Norms as κ={kappa}", _imitated(activation, kappa), ONE))
            arms.append((f"κ=1, all weights/{kappa}, rate/{kappa**2}", _all_scaled(activation, kappa), ONE))
        if activation == "sigmoid":
            arms += [(f"κ={kappa}, torch's first weights", SMALLER, _spec(kappa)) for kappa in KAPPAS]
        for label, part, norm in arms:
            if results.of(part, norm=norm):
                rows.append(
                    [
                        name,
                        label,
                        spread(losses(results, part, norm), 3),
                        spread(results.values(accuracy(RUNNING), part, norm=norm)),
                        spread(results.values(accuracy(ANEW), part, norm=norm)),
                    ]
                )
        lines = [loss_line(label, results.of(part, norm=norm)) for label, part, norm in arms[: len(KAPPAS)]]
        if any(len(line.mean) for line in lines):
            panels[name] = lines
    heads = ["activation", "training", "final training loss", "test accuracy, %", "with statistics measured anew, %"]
    blocks: list[Block] = [Table("Losses and accuracies", heads, rows, seeds_of(results.records))]
    if panels:
        blocks.append(Chart("loss", "Training loss", "epoch", "loss", panels))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _verdicts(results: Results) -> list[Verdict]:
    found = []
    for activation, name in ACTIVATIONS.items():
        one, four, sixteen = (losses(results, activation, _spec(kappa)) for kappa in KAPPAS)
        if not sixteen:
            continue
        found += [
            Verdict(
                f"{name}: κ=4 ends with a lower training loss than κ=1",
                "Figure 2",
                f"{spread(four, 3)} against {spread(one, 3)}",
                *better(one, four),
            ),
            Verdict(
                f"{name}: κ=16 is too much: a higher loss than κ=4",
                "Figure 2",
                f"{spread(sixteen, 3)} against {spread(four, 3)}",
                *better(sixteen, four),
            ),
        ]
    for kappa in KAPPAS[1:]:
        parts = [
            (losses(results, _imitated(activation, kappa), ONE), losses(results, activation, _spec(kappa)))
            for activation in ACTIVATIONS
        ]
        imitated, own = (pooled([part[side] for part in parts]) for side in (0, 1))
        if imitated:
            found.append(
                Verdict(
                    f"κ={kappa} is nothing but w/{kappa} and rate/{kappa**2} for the weights behind POP-Norms",
                    "Remark 2, with reservations",
                    f"{spread(imitated, 3)} against {spread(own, 3)}, all activations",
                    *level(imitated, own, _SAME),
                )
            )
    return found


_DIFFERS = f"""\
{SCALED_DOWN}
- Figure 2 shows training losses on CIFAR-100 without numbers.
- The imitations are ours. Weights behind a POP-Norm that start at w/κ and learn at the rate α/κ², with weight decay
  λκ², compute what κ computes: F(w/κ). In the arms with *all weights* every other parameter, of norms and biases,
  learns at the rate α/κ² too, as the paper's remark read literally would have it.
- *torch's first weights* are smaller than those of He et al. by √6: what κ is too much depends on them."""

STUDY = Study(
    name="popnorm-kappa",
    line="POP-Norm with κ = 1, 4 and 16 under sigmoid, tanh and ReLU, and κ imitated by first weights and rates",
    source="POP-Norm, Figure 2 and Remark 2",
    minutes={"laptop": 11},
    plan=plan,
    read=read,
    curves=("loss",),
)
