"""POP-Norm's divisor κ: training loss for κ = 1, 4 and 16, and whether other weights and rates can imitate κ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .page import Block, Chart, Page, Table, spread
from .popnorm import (
    ACTIVATIONS,
    HE,
    LAPTOP,
    PAPER,
    RECOMPUTED,
    RUNNING,
    SCALED_DOWN,
    SHARED,
    loss_line,
    losses,
    seeds_of,
)
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import OWN, Verdict, better

KAPPAS = (1, 4, 16)
ONE = "pop(kappa=1)"
SMALLER = "sigmoid, torch's first weights"  # a name in stored results


def plan(preset: str) -> dict[str, StudyRecipe]:
    """For each activation, all κ; then κ = 1 with weights and rates that imitate a larger κ, in two ways."""
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
            arms.append((f"κ=1, weights after POP-Norms as κ={kappa}", _imitated(activation, kappa), ONE))
            arms.append((f"κ=1, all weights/{kappa}, rate/{kappa**2}", _all_scaled(activation, kappa), ONE))
        if activation == "sigmoid":
            arms += [(f"κ={kappa}, torch's initial weights", SMALLER, _spec(kappa)) for kappa in KAPPAS]
        for label, part, norm in arms:
            if results.of(part, norm=norm):
                rows.append(
                    [
                        name,
                        label,
                        spread(losses(results, part, norm), 3),
                        spread(results.values(accuracy(RUNNING), part, norm=norm)),
                        spread(results.values(accuracy(RECOMPUTED), part, norm=norm)),
                    ]
                )
        lines = [loss_line(label, results.of(part, norm=norm)) for label, part, norm in arms[: len(KAPPAS)]]
        if any(len(line.mean) for line in lines):
            panels[name] = lines
    heads = ["activation", "training", "final training loss", "test accuracy, %", "with statistics recomputed, %"]
    note = f"{seeds_of(results.records)} {_identity(results)}".strip()
    blocks: list[Block] = [Table("Losses and accuracies", heads, rows, note)]
    if panels:
        blocks.append(Chart("loss", "Training loss", "epoch", "loss", panels))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _identity(results: Results) -> str:
    """The difference between κ and its imitation by the weights after POP-Norms: a check of the code, not a claim."""
    gaps = [
        abs(loss - imitated[pair])
        for activation in ACTIVATIONS
        for kappa in KAPPAS[1:]
        for imitated in [losses(results, _imitated(activation, kappa), ONE)]
        for pair, loss in losses(results, activation, _spec(kappa)).items()
        if pair in imitated
    ]
    if not gaps:
        return ""
    return (
        "κ and the imitation by the weights after POP-Norms are the same arithmetic: their final losses differ by at "
        f"most {max(gaps):.2g} in {len(gaps)} pairs."
    )


def _verdicts(results: Results) -> list[Verdict]:
    def lower(claim: str, published: str, low: Mapping[Pair, float], high: Mapping[Pair, float]) -> list[Verdict]:
        ours = f"{spread(low, 3)} against {spread(high, 3)}"
        return [Verdict(claim, published, ours, *better(high, low))] if low and high else []

    found = []
    for activation, name in ACTIVATIONS.items():
        one, four, sixteen = (losses(results, activation, _spec(kappa)) for kappa in KAPPAS)
        scaled = losses(results, _all_scaled(activation, 4), ONE)
        figure = "Figure 2, Section 5.2"
        found += lower(f"{name}: κ=4 ends with a lower training loss than κ=1", figure, four, one)
        found += lower(f"{name}: κ=16 is too much: κ=4 ends with a lower training loss", figure, four, sixteen)
        claim = f"{name}: κ=4 ends with a lower training loss than κ=1 with all initial weights/4 and all rates/16"
        found += lower(claim, OWN, four, scaled)
    return found


_DIFFERS = f"""\
{SCALED_DOWN}
- Figure 2 shows training losses on CIFAR-100 without numbers.
- The imitations are ours. Weights after a POP-Norm that start at w/κ and learn at the rate α/κ², with weight decay λκ²,
  compute what κ computes: F(w/κ). The arms with *all weights* are one reading of Remark 2, turned round: it says that
  with κ in place the training would be the same if the initial weights were magnified by κ and the rate scaled to
  match. It names no power of κ for the rate and does not speak of other parameters; here κ is left out, initial weights
  are divided by κ, and every parameter, including those of norms and biases, learns at the rate α/κ². That it does
  better may only mean that the rate 0.1 is high for these runs.
- *torch's initial weights* are smaller than those of He et al. by √6: what κ is too much depends on them.
{SHARED}"""

STUDY = Study(
    name="popnorm-kappa",
    line="POP-Norm with κ = 1, 4 and 16 under sigmoid, tanh and ReLU, and κ imitated by initial weights and rates",
    source="POP-Norm, Figure 2 and Remark 2",
    minutes={"laptop": 5},
    plan=plan,
    read=read,
    curves=("loss",),
)
