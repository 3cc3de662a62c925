"""The quantities in POP-Norm's theorems, measured: noise, sharpness and condition, and the effect of activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .page import Block, Chart, Page, Table, mean_line, spread
from .popnorm import ACTIVATIONS, EVERYWHERE, LAPTOP, PAPER, SHARED, mean_by_seed, seeds_of
from .recipe import StudyRecipe
from .results import Pair, Record, Results
from .study import Study
from .verdicts import OWN, UNDECIDED, Answer, Verdict, above, below, better, level

BATCH, ONE, POP = "bn", "pop(kappa=1)", "pop(kappa=4)"
NORMS = {BATCH: "BatchNorm", ONE: "POP-Norm, κ=1", POP: "POP-Norm, κ=4", "pop(kappa=16)": "POP-Norm, κ=16"}
SLOPES = ", slopes"
Figure = Callable[[Record, int], float]


def plan(preset: str) -> dict[str, StudyRecipe]:
    """For each activation, a VGG with all norms and its curvature, and a perceptron with the slopes against κ."""
    base = replace(PAPER, seeds=(0, 1, 2)) if preset == "paper" else LAPTOP
    small = StudyRecipe(norms=(POP,), probes=("slopes",), seeds=(0, 1, 2), epochs=5)
    parts = {}
    for activation in ACTIVATIONS:
        options = {**base.model_options, "activation": activation}
        parts[activation] = replace(
            base, norms=tuple(NORMS), model_options=options, probes=("sharpness", "arrival"), evaluations=("clean",)
        )
        hidden = {"activation": activation, "layers": 3, **EVERYWHERE}
        parts[activation + SLOPES] = replace(small, model_options=hidden)
    return parts


# Figures of one epoch; those that vary by orders of magnitude are compared as logarithms.


def variance(record: Record, epoch: int) -> float:
    """log10 of E‖∇f_i − ∇F‖²."""
    return _log(record.curve["sharpness"][epoch]["variance"])


def lipschitz(record: Record, epoch: int) -> float:
    """log10 of the largest |λ| of the Hessian."""
    return _log(record.curve["sharpness"][epoch]["lipschitz"])


def condition(record: Record, epoch: int) -> float:
    """Mean of log10 of the condition number of inputs; infinite if one of them is."""
    values = _conditions(record, epoch)
    return sum(values) / len(values) if values else math.nan


def _conditions(record: Record, epoch: int) -> list[float]:
    """Of all convolutions except the first, whose input is the image, and the last, whose input in the laptop preset is
    one pixel and eight of padding, which makes it infinite under any norm. The final linear layer is left out too."""
    return [_log(value) for value in record.curve["sharpness"][epoch]["condition"][1:-2]]


def _log(value: float | None) -> float:
    return math.log10(value) if value is not None and value > 0 else math.nan


def mean_share(record: Record, epoch: int) -> float:
    """mean²/rms² of the input, averaged over the inner operations."""
    values = record.curve["arrival"][epoch]["mean_share"][1:-1]
    return float(sum(values) / len(values))


def division(record: Record, epoch: int) -> float:
    """How much of the norms' division is passed on, averaged over the inner operations."""
    values = record.curve["arrival"][epoch]["division"][1:-1]
    return float(sum(values) / len(values))


FIGURES: dict[str, tuple[Figure, str]] = {
    "gradient variance": (variance, "variance"),
    "Lipschitz constant of the gradient": (lipschitz, "lipschitz"),
    "condition number of the inputs": (condition, "condition"),
}


def read(results: Results) -> Page:
    """Curves over the training, effects of activations, slopes against κ, and verdicts."""
    blocks: list[Block] = [_curvature_table(results), _arrival_table(results), _slope_table(results)]
    for name, (figure, short) in FIGURES.items():
        panels = {}
        for activation, title in ACTIVATIONS.items():
            lines = []
            for norm, label in NORMS.items():
                curves = [_by_epoch(record, figure) for record in results.of(activation, norm=norm)]
                if curves and not any(math.inf in curve for curve in curves):
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
        [title, label, *[_cell(results, activation, norm, figure) for figure in figures]]
        for activation, title in ACTIVATIONS.items()
        for norm, label in NORMS.items()
        if results.of(activation, norm=norm)
    ]


def _cell(results: Results, activation: str, norm: str, figure: Figure) -> str:
    """Mean and deviation; for condition numbers without a finite mean, how many are infinite."""
    values = _means(results, activation, norm, figure)
    if figure is not condition or math.inf not in values.values():
        return spread(values)
    measured = [
        value
        for record in results.of(activation, norm=norm)
        for epoch in range(len(record.curve["sharpness"]))
        for value in _conditions(record, epoch)
    ]
    return f"∞ in {measured.count(math.inf)} of {len(measured)}"


def _curvature_table(results: Results) -> Table:
    rows = _rows(results, [figure for figure, _ in FIGURES.values()])
    trained = [record for record in results.records if record.part in ACTIVATIONS]
    heads = ["activation", "norm", *[f"log10 of {name}" for name in FIGURES]]
    note = f"{seeds_of(trained)} ∞ in n of m: n of m measurements (seeds, epochs and layers) were infinite."
    return Table("Noise, sharpness and condition, mean over the epochs", heads, rows, note)


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
        # Section 4 expects BatchNorm to lose little under ReLU, and does not speak of condition numbers.
        of_batch = OWN if activation == "relu" else "Section 4"
        for name, figure, other, source in (
            ("gradient variance", variance, BATCH, of_batch),
            ("gradient variance", variance, ONE, "Remark 2"),
            ("Lipschitz constant of the gradient", lipschitz, BATCH, of_batch),
            ("Lipschitz constant of the gradient", lipschitz, ONE, "Remark 2"),
            ("condition number of the inputs", condition, BATCH, OWN),
        ):
            high, low = _means(results, activation, other, figure), _means(results, activation, POP, figure)
            if high and low:
                ours = " against ".join(_cell(results, activation, norm, figure) for norm in (POP, other))
                claim = f"{title}: {name} lower under POP-Norm, κ=4, than under {NORMS[other]}"
                answer = better(high, low)
                if math.inf in (*high.values(), *low.values()):
                    answer = Answer(UNDECIDED, "infinite in some measurements")
                found.append(Verdict(claim, source, f"log10 {ours}", *answer))
    return found + _powers(results) + _survivals(results)


def _powers(results: Results) -> list[Verdict]:
    """Remark 2 is about all activations at once, so the verdict is on their mean for each seed."""
    found = []
    for kind, name in (("largest", "Lipschitz constant"), ("variance", "gradient variance")):
        for place, layer in _LAYERS.items():
            slopes = mean_by_seed([_slopes(results, activation, layer, kind) for activation in ACTIVATIONS])
            if slopes:
                claim = f"Weights of {place}: {name} proportional to 1/κ² (slope −2), mean of three activations"
                answer = level(slopes, dict.fromkeys(slopes, -2.0), 0.5)
                found.append(Verdict(claim, "Remark 2, of its bound", f"slope {spread(slopes)}", *answer))
    return found


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


_DIFFERS = f"""\
- Theorems 2 and 3 compare inputs after a step of the normalization with those before it, at the same weights. No arm
  here is without normalization, so they are not tested. We test what the paper concludes from them: that κ=4 is better
  than κ=1 (Remark 2), and that POP-Norm is better than BatchNorm where there is a sigmoid or tanh between a norm and
  the next convolution (Section 4). The same comparison under ReLU, where Section 4 expects little, and that of
  condition numbers are our own questions.
- Theorems and Remark 2 speak of bounds: upper ones on the variance and on the Lipschitz constant, a lower one on the
  condition number. Here the quantities themselves are measured, after every epoch, on the same samples for all norms:
  the variance over single samples within their batch and the largest |λ| of the Hessian of the loss by Lanczos, both
  for all parameters together. A quantity that does not follow its bound does not contradict the bound.
- The condition number is that of E[zzᵗ], of what a convolution sees with the 1 of its bias, not that of ∇²F as in
  Theorem 3 (3). κ=4 and κ=1 are not compared in it: in that theorem a κ common to all channels cancels. It is the mean
  over all convolutions but the first and the last, in the laptop preset the second to the fourth: the fifth sees images
  of one pixel and otherwise padding, and is infinite under every norm. Where one of the others is infinite (a direction
  is not seen, up to rounding) the table says so, a verdict is undecided, and the chart has no line.
- Each norm is measured during its own training. A smaller variance or constant does not by itself mean faster training:
  both change when weights are only expressed in other units, as κ does.
- Slopes are those of the logarithms against log κ, at fixed weights. −2 ± 0.5 is nearer to 1/κ² than to any other
  whole power.
- Section 4 says *not so serious*, *damage*, *reserve* and *destroy*; the bounds 0.8, 0.2 and 0.5 are ours, chosen when
  the results were known: destroyed means that more than half is lost, damaged that more than a fifth is lost. No
  result is nearer than 0.2 to its bound. That a division passes a ReLU unchanged is arithmetic.
- Between a norm and the next convolution there is max pooling besides the activation; it also shifts the mean.
- Network and training are those of popnorm-kappa; slopes are of a perceptron with three hidden layers on digits, with a
  POP-Norm before every layer.
{SHARED}"""

STUDY = Study(
    name="popnorm-theory",
    line="Gradient variance, Lipschitz constant and condition number against κ and BatchNorm; what activations leave",
    source="POP-Norm, Remark 2 and Section 4, on Theorems 2 and 3",
    minutes={"laptop": 5},
    plan=plan,
    read=read,
    curves=("sharpness", "arrival", "slopes"),
)
