"""POP-Norm's theorems measured: noise, sharpness and condition during training, and what an activation leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..recipe import Recipe
from .page import Block, Chart, Page, Table, mean_line, spread
from .popnorm import ACTIVATIONS, EVERYWHERE, LAPTOP, PAPER, seeds_of
from .results import Pair, Record, Results
from .study import Study
from .verdicts import Verdict, above, below, better, level

BATCH, POP = "bn", "pop(kappa=4)"
NORMS = {BATCH: "BatchNorm", "pop(kappa=1)": "POP-Norm, κ=1", POP: "POP-Norm, κ=4", "pop(kappa=16)": "POP-Norm, κ=16"}
SLOPES = ", slopes"
Figure = Callable[[Record, int], float]


def plan(preset: str) -> dict[str, Recipe]:
    """By activation: a VGG under all norms with its curvature; and a perceptron with the slopes against κ."""
    base = replace(PAPER, seeds=(0, 1, 2)) if preset == "paper" else LAPTOP
    small = Recipe(norms=(POP,), probes=("slopes",), seeds=(0, 1, 2), epochs=5)
    parts = {}
    for activation in ACTIVATIONS:
        options = {**base.model_options, "activation": activation}
        parts[activation] = replace(
            base, norms=tuple(NORMS), model_options=options, probes=("sharpness", "arrival"), evaluations=("clean",)
        )
        hidden = {"activation": activation, "layers": 3, **EVERYWHERE}
        parts[activation + SLOPES] = replace(small, model_options=hidden)
    return parts


# Figures of one epoch. Those that span orders of magnitude are compared as logarithms.


def variance(record: Record, epoch: int) -> float:
    """log10 of E‖∇f_i − ∇F‖²."""
    return _log(record.curve["sharpness"][epoch]["variance"])


def lipschitz(record: Record, epoch: int) -> float:
    """log10 of the largest |λ| of the Hessian."""
    return _log(record.curve["sharpness"][epoch]["lipschitz"])


def condition(record: Record, epoch: int) -> float:
    """Mean over the inner convolutions of log10 of the condition number of their inputs; infinite ones left out."""
    values = [_log(value) for value in record.curve["sharpness"][epoch]["condition"][1:-1]]
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _log(value: float | None) -> float:
    return math.log10(value) if value is not None and value > 0 else math.nan


def mean_share(record: Record, epoch: int) -> float:
    """Share of the mean in the squared input, mean over the inner operations."""
    values = record.curve["arrival"][epoch]["mean_share"][1:-1]
    return float(sum(values) / len(values))


def division(record: Record, epoch: int) -> float:
    """How much of a division by the norms arrives, mean over the inner operations."""
    values = record.curve["arrival"][epoch]["division"][1:-1]
    return float(sum(values) / len(values))


THEOREMS: Mapping[str, tuple[Figure, str, str]] = {
    "gradient variance": (variance, "Theorems 2 (1), 3 (1)", "variance"),
    "Lipschitz constant of the gradient": (lipschitz, "Theorems 2 (2), 3 (2)", "lipschitz"),
    "condition number of the inputs": (condition, "Theorem 3 (3)", "condition"),
}


def read(results: Results) -> Page:
    """Curves over the training, what arrives, slopes against κ, and verdicts."""
    blocks: list[Block] = [_curvature_table(results), _arrival_table(results), _slope_table(results)]
    for name, (figure, _, short) in THEOREMS.items():
        panels = {}
        for activation, title in ACTIVATIONS.items():
            lines = []
            for norm, label in NORMS.items():
                curves = [_by_epoch(record, figure) for record in results.of(activation, norm=norm)]
                if curves:
                    lines.append(mean_line(label, curves))
            if lines:
                panels[title] = lines
        if panels:
            blocks.append(Chart(short, f"{name[0].upper()}{name[1:]}", "epoch", "log10", panels))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _by_epoch(record: Record, figure: Figure) -> list[float]:
    return [figure(record, epoch) for epoch in range(len(record.curve["sharpness"]))]


def _means(results: Results, part: str, norm: str, figure: Figure) -> dict[Pair, float]:
    """The mean over the epochs."""

    def mean(record: Record) -> float:
        values = _by_epoch(record, figure)
        return sum(values) / len(values)

    return results.values(mean, part, norm=norm)


def _rows(results: Results, figures: list[Figure]) -> list[list[str]]:
    return [
        [title, label, *[spread(_means(results, activation, norm, figure)) for figure in figures]]
        for activation, title in ACTIVATIONS.items()
        for norm, label in NORMS.items()
        if results.of(activation, norm=norm)
    ]


def _curvature_table(results: Results) -> Table:
    rows = _rows(results, [figure for figure, _, _ in THEOREMS.values()])
    trained = [record for record in results.records if record.part in ACTIVATIONS]
    heads = ["activation", "norm", *[f"log10 of {name}" for name in THEOREMS]]
    return Table("Noise, sharpness and condition, mean over the epochs", heads, rows, seeds_of(trained))


def _arrival_table(results: Results) -> Table:
    note = (
        "At the inputs of the inner convolutions. Mean²/rms² is 0 where the mean removal arrived; division is 1 where "
    )
    note += "a division by the norm arrives as one, 0 where nothing of it does."
    heads = ["activation", "norm", "mean²/rms²", "division that arrives"]
    return Table("What survives the activation", heads, _rows(results, [mean_share, division]), note)


def _slope_table(results: Results) -> Table:
    rows = []
    for activation, title in ACTIVATIONS.items():
        for place, layer in _LAYERS.items():
            figures = [_slopes(results, activation, layer, kind) for kind in ("largest", "variance")]
            if figures[0]:
                rows.append([title, place, *[spread(values) for values in figures]])
    heads = ["activation", "weights of", "slope of log λ max", "slope of log variance"]
    return Table("Slopes against log κ", heads, rows, "κ of one POP-Norm moved to 1, 4 and 16, after every epoch.")


_LAYERS = {"the first layer": 0, "an inner layer": 1, "the last layer": -1}


def _slopes(results: Results, activation: str, layer: int, kind: str) -> dict[Pair, float]:
    def mean(record: Record) -> float:
        values = [epoch[kind][layer] for epoch in record.curve["slopes"]]
        return float(sum(values) / len(values))

    return results.values(mean, activation + SLOPES)


def _verdicts(results: Results) -> list[Verdict]:
    found = []
    for activation, title in ACTIVATIONS.items():
        for name, (figure, source, _) in THEOREMS.items():
            for other in (BATCH, "pop(kappa=1)"):
                high, low = _means(results, activation, other, figure), _means(results, activation, POP, figure)
                if high and low:
                    ours = f"log10 {spread(low)} against {spread(high)}"
                    claim = f"{title}: {name} lower under POP-Norm, κ=4, than under {NORMS[other]}"
                    found.append(Verdict(claim, source, ours, *better(high, low)))
    for activation, title in ACTIVATIONS.items():
        for place, layer in _LAYERS.items():
            slopes = _slopes(results, activation, layer, "largest")
            if slopes:
                claim = f"{title}: the sharpness of {place} goes with 1/κ²: slope −2"
                answer = level(slopes, dict.fromkeys(slopes, -2.0), 0.5)
                found.append(Verdict(claim, "Remark 2", f"slope {spread(slopes)}", *answer))
    return found + _survivals(results)


def _survivals(results: Results) -> list[Verdict]:
    found = []
    claims: list[tuple[str, str, Figure, float, bool]] = [
        ("relu", "a good part of BatchNorm's division arrives (over 0.8)", division, 0.8, True),
        ("tanh", "BatchNorm's mean removal arrives (mean²/rms² under 0.2)", mean_share, 0.2, False),
        ("tanh", "BatchNorm's division is damaged (under 0.8)", division, 0.8, False),
        ("sigmoid", "BatchNorm's mean removal is destroyed (mean²/rms² over 0.5)", mean_share, 0.5, True),
        ("sigmoid", "BatchNorm's division is destroyed (under 0.5)", division, 0.5, False),
    ]
    for activation, claim, figure, bound, over in claims:
        values = _means(results, activation, BATCH, figure)
        if values:
            answer = above(values, bound) if over else below(values, bound)
            found.append(Verdict(f"{ACTIVATIONS[activation]}: {claim}", "Section 4", spread(values), *answer))
    return found


_DIFFERS = """\
- The theorems compare bounds, of which the one on the condition number is a lower one; here the quantities themselves
  are measured, after every epoch, on the same samples for all norms: the variance over single samples within their
  batch and the largest |λ| of the Hessian of the loss by Lanczos, both for all parameters together; and the condition
  number of E[zzᵗ] for what each convolution sees, with the 1 of its bias.
- Each norm is measured along its own training. A smaller variance or constant is no faster training by itself: both
  change when weights are only written in other units, as κ does.
- Between a norm and the next convolution stands a max pooling beside the activation; it moves the mean as well.
- Network and training are those of popnorm-kappa's laptop preset; slopes are of a perceptron with three hidden layers
  on digits, with a POP-Norm before every layer."""

STUDY = Study(
    name="popnorm-theory",
    line="Gradient variance, Lipschitz constant and condition number against κ and BatchNorm; what activations leave",
    source="POP-Norm, Theorems 1 to 3, Remark 2 and Section 4",
    minutes={"laptop": 9},
    plan=plan,
    read=read,
    curves=("sharpness", "arrival", "slopes"),
)
