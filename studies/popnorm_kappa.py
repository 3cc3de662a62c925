"""POP-Norm's divisor κ: training loss for κ = 1, 4 and 16, and whether other weights and rates can imitate κ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    guessing,
    loss_line,
    losses,
    mean_by_seed,
    mean_losses,
    seeds_of,
    visible,
)
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import OWN, Answer, Verdict, better, explored

ONE, FOUR, SIXTEEN = "pop(kappa=1)", "pop", "pop(kappa=16)"  # 4 is the usual κ
NORMS = {ONE: "κ=1", FOUR: "κ=4", SIXTEEN: "κ=16"}
# In shares of a training's own decrease: as in a figure whose height is that decrease.
_RELATIVE_LEAST = 1 / 50
Figure = Callable[[str], dict[Pair, float]]


def plan(preset: str) -> dict[str, StudyRecipe]:
    """For each activation all κ, and κ = 1 with weights and rates that imitate κ = 4."""
    base = replace(PAPER, seeds=(0, 1, 2, 3, 4, 5)) if preset == "paper" else LAPTOP
    parts = {}
    for activation in ACTIVATIONS:
        own = replace(base, model_options={**base.model_options, "activation": activation})
        parts[activation] = replace(own, norms=tuple(NORMS))
        parts[_scaled(activation)] = replace(own, norms=(ONE,), weight_scale=HE / 4, lr=base.lr / 4**2)
    return parts


def _scaled(activation: str) -> str:
    return f"{activation}, everything as if κ=4"


def read(results: Results) -> Page:
    """Losses by κ and activation, the imitation, and verdicts."""
    rows, panels = [], {}
    for activation, name in ACTIVATIONS.items():
        arms = [(label, activation, norm) for norm, label in NORMS.items()]
        for label, part, norm in [*arms, ("κ=1, all weights/4, rate/16", _scaled(activation), ONE)]:
            if results.of(part, norm=norm):
                figures = [values(results, part, norm) for values in (mean_losses, losses)]
                accuracies = [results.values(accuracy(how), part, norm=norm) for how in (RUNNING, RECOMPUTED)]
                rows.append([name, label, *(spread(one, 3) for one in figures), *map(spread, accuracies)])
        lines = [loss_line(label, results.of(part, norm=norm)) for label, part, norm in arms]
        if any(len(line.mean) for line in lines):
            panels[name] = lines
    heads = [
        "activation",
        "training",
        "mean training loss",
        "final training loss",
        "test accuracy, %",
        "with statistics recomputed, %",
    ]
    blocks: list[Block] = [Table("Losses and accuracies", heads, rows, seeds_of(results.records))]
    if panels:
        blocks.append(Chart("loss", "Training loss", "epoch", "loss", panels))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _verdicts(results: Results) -> list[Verdict]:
    def final(norm: str) -> Figure:
        return lambda activation: losses(results, activation, norm)

    def whole(norm: str) -> Figure:
        return lambda activation: mean_losses(results, activation, norm)

    def imitated(activation: str) -> dict[Pair, float]:
        return losses(results, _scaled(activation), ONE)

    figure = "Figure 2, Section 5.2"
    ends = "ends with a lower training loss than"
    return [
        *_lower("κ=4 trains faster than κ=1", figure, whole(FOUR), whole(ONE), results),
        *_lower(f"κ=4 {ends} κ=1", figure, final(FOUR), final(ONE), results),
        *_lower(f"κ=16 is too much: κ=4 {ends} κ=16", figure, final(FOUR), final(SIXTEEN), results),
        *_relatively_faster(results),
        *_lower(f"κ=4 {ends} κ=1 with all initial weights/4 and all rates/16", OWN, final(FOUR), imitated, results),
    ]


def _lower(claim: str, source: str, low: Figure, high: Figure, results: Results) -> list[Verdict]:
    """The verdict on the mean of the three activations, and each of them without one."""

    def found(names: Sequence[str]) -> tuple[str, Answer] | None:
        one, other = (mean_by_seed([figure(name) for name in names]) for figure in (low, high))
        answer = better(other, one, visible(results.preset))
        return (f"loss {spread(one, 3)} against {spread(other, 3)}", answer) if one and other else None

    verdicts = []
    pooled = found(list(ACTIVATIONS))
    if pooled:
        verdicts.append(Verdict(f"{claim}, mean of three activations", source, pooled[0], *pooled[1]))
    for activation, name in ACTIVATIONS.items():
        single = found([activation])
        if single:
            verdicts.append(Verdict(f"{name}: {claim}", source, single[0], *explored(single[1])))
    return verdicts


def _relatively_faster(results: Results) -> list[Verdict]:
    """Section 5.2: with κ=16 the *relative* speed is higher although the loss is."""

    def waiting(norm: str) -> dict[Pair, float]:
        """The mean share of its own decrease that a training has still before it."""
        whole, last = (
            mean_by_seed([values(results, activation, norm) for activation in ACTIVATIONS])
            for values in (mean_losses, losses)
        )
        start = guessing(results.preset)
        return {pair: (whole[pair] - last[pair]) / (start - last[pair]) for pair in whole if last[pair] < start}

    four, sixteen = waiting(FOUR), waiting(SIXTEEN)
    if not four or not sixteen:
        return []
    claim = "κ=16 comes near its own final loss sooner than κ=4 does, mean of three activations"
    ours = f"share of its decrease still to come {spread(sixteen, 3)} against {spread(four, 3)}"
    return [Verdict(claim, "Section 5.2", ours, *better(four, sixteen, _RELATIVE_LEAST))]


_DIFFERS = f"""\
{SCALED_DOWN}
- Figure 2 shows training losses on CIFAR-100, for sigmoid, tanh and ReLU, without numbers. Section 5.2 speaks of all
  three at once, so a verdict is on their mean for each seed; each of them is shown without a verdict.
- *Faster* means a lower mean training loss over all epochs, which is the area under the curve; a training *ends* with
  the mean loss of its last epoch. The least difference of interest is a fiftieth of the height of a figure from 0 to
  the loss of guessing: two widths of a line.
- *The relative convergence speed* with κ=16 is read as: relative to the training's own decrease. The figure is the mean
  over the epochs of the share of it that is still to come, with the losses averaged over the activations first; the
  least difference of interest is 0.02, again a fiftieth.
- κ is the same as other initial weights and rates of the weights after POP-Norms, F(w/κ), as Remark 2 says: at w/κ,
  with the rate α/κ² and weight decay λκ². That is arithmetic, and a test compares the losses. The arm with *all
  weights* is our reading of the rest of the remark, turned round: κ is left out, all initial weights are divided by κ,
  and every parameter, including those of norms and biases, learns at the rate α/κ². The paper names no power of κ for
  the rate and does not speak of other parameters. That this arm does better may only mean that 0.1 is a high rate here.
{SHARED}"""

STUDY = Study(
    name="popnorm-kappa",
    line="POP-Norm with κ = 1, 4 and 16 under sigmoid, tanh and ReLU, and κ imitated by initial weights and rates",
    source="POP-Norm, Figure 2 and Remark 2",
    minutes={"laptop": 10},
    plan=plan,
    read=read,
    curves=("loss", "train_accuracy"),
)
