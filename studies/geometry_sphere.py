"""Is training on spheres more stable? SphereSGD against SGD, from the same weights and at the same rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from geonorm.lab.statistics import summarize

from .geometry import LABELS, LEAST, PAPER, SOURCE, groups_of, norms_in, over
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import OWN, Answer, Verdict, better, explored, level

OPTIMIZERS = {"sgd": "SGD", "sphere_sgd": "SphereSGD"}
RATES: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
NAMES = LABELS | {"ln": "LayerNorm"}
LAPTOP = StudyRecipe(norms=("bn", "ln", "gn(groups=4)", "wn", "cwn"), seeds=tuple(range(10)), epochs=10)
CHANCE = 10.0  # per cent, of ten classes
TRAINED = 50.0  # per cent: the variation from seed to seed is compared where both are better on average

Values = dict[tuple[int, str], float]  # by seed and norm


def _part(optimizer: str, rate: float) -> str:
    return f"{OPTIMIZERS[optimizer]}, rate {rate:g}"


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by optimizer and rate."""
    one = LAPTOP
    if preset == "paper":
        one = replace(PAPER, norms=("bn", "gn(groups=1)", groups_of(preset), "wn", "cwn"))
    one = replace(one, probes=("invariant_lengths",))
    return {_part(name, rate): replace(one, optimizer=name, lr=rate) for name in OPTIMIZERS for rate in RATES}


def read(results: Results) -> Page:
    """Tables by norm, curves of the loss, accuracy against the effective rate, and verdicts."""
    norms = norms_in(results)
    rows = [
        [NAMES[norm], label, *[_cell(_records(results, name, rate, norm)) for rate in RATES]]
        for norm in norms
        for name, label in OPTIMIZERS.items()
    ]
    heads = ["norm", "optimizer", *[f"rate {rate:g}" for rate in RATES]]
    matched = {NAMES[norm]: [_against_rate(results, name, norm) for name in OPTIMIZERS] for norm in norms}
    title = "Accuracy against the effective learning rate, over the whole training"
    blocks: list[Block] = [
        Table("Accuracy, %", heads, rows, "Mean ± deviation over seeds. Diverged: the loss became NaN in all of them."),
        Chart("matched", title, "mean of η/‖w‖²", "accuracy, %", matched, log_x=True),
        *[_losses(results, norm) for norm in norms],
    ]
    return Page(_DIFFERS, _verdicts(results), blocks)


def _losses(results: Results, norm: str) -> Chart:
    """Curves of the loss, one panel for each rate with data."""
    panels = {}
    for rate in RATES:
        curves = {
            label: [record.curve["loss"] for record in _records(results, name, rate, norm)]
            for name, label in OPTIMIZERS.items()
        }
        if any(sum(map(math.isfinite, one)) > 1 for several in curves.values() for one in several):
            panels[f"rate {rate:g}"] = [mean_line(label, several) for label, several in curves.items()]
    name = NAMES[norm].lower().replace(" ", "-")
    return Chart(f"losses-{name}", f"Training loss, {NAMES[norm]}", "epoch", "loss", panels, log=True)


def _records(results: Results, optimizer: str, rate: float, norm: str) -> list[Record]:
    return results.of(_part(optimizer, rate), norm=norm)


def _has_diverged(record: Record) -> bool:
    return not math.isfinite(record.curve["loss"][-1])


def _cell(records: list[Record]) -> str:
    values = [math.nan if _has_diverged(record) else accuracy()(record) for record in records]
    return spread(values, 1) or ("diverged" if records else "")


def _accuracy(record: Record) -> float:
    """In per cent; chance for a network that diverged: NaN counts as wrong, so it would seem worse than chance."""
    return CHANCE if _has_diverged(record) else accuracy()(record)


def _accuracies(results: Results, optimizer: str, rate: float, norm: str) -> dict[Pair, float]:
    return results.values(_accuracy, _part(optimizer, rate), norm=norm)


def _effective(record: Record, rate: float) -> float:
    """Mean over epochs and weights of log10 η/‖w‖²; NaN for a training that diverged."""
    lengths = [length for epoch in record.curve["invariant_lengths"] for length in epoch["part"]]
    if not all(0 < length < math.inf for length in lengths):
        return math.nan
    return math.fsum(math.log10(rate / length**2) for length in lengths) / len(lengths)


def _points(results: Results, optimizer: str, norm: str, seed: int | None = None) -> dict[float, tuple[float, float]]:
    """Effective rate and accuracy at each rate from the smallest, of one seed or on average."""
    found = {}
    for rate in RATES:
        records = [r for r in _records(results, optimizer, rate, norm) if seed in (None, r.choices["seed"])]
        rates = summarize([_effective(record, rate) for record in records])
        if rates.number:
            found[rate] = rates.mean, summarize([_accuracy(record) for record in records]).mean
    return found


def _against_rate(results: Results, optimizer: str, norm: str) -> Line:
    points = _points(results, optimizer, norm).values()
    return Line(OPTIMIZERS[optimizer], [10**x for x, _ in points], [y for _, y in points])


def _matched(results: Results, norms: list[str]) -> tuple[Values, Values, set[float]]:
    """Mean accuracy of SphereSGD, that of SGD interpolated at the same effective rates, and the rates in common."""
    sphere: Values = {}
    plain: Values = {}
    rates: set[float] = set()
    for norm in norms:
        for seed in sorted({record.choices["seed"] for record in results.records}):
            known = list(_points(results, "sgd", norm, seed).values())
            both = {
                rate: (y, _between(known, x)) for rate, (x, y) in _points(results, "sphere_sgd", norm, seed).items()
            }
            pairs = {rate: (y, other) for rate, (y, other) in both.items() if other is not None}
            rates |= pairs.keys()
            if pairs:
                sphere[seed, norm] = math.fsum(y for y, _ in pairs.values()) / len(pairs)
                plain[seed, norm] = math.fsum(other for _, other in pairs.values()) / len(pairs)
    return sphere, plain, rates


def _between(points: list[tuple[float, float]], x: float) -> float | None:
    """Linear interpolation of the points at x, where the effective rate increases; None elsewhere.

    It decreases where larger rates make the weights explode: those trainings have no counterpart.
    """
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1 != x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None


def _cells(results: Results, norm: str) -> dict[str, list[dict[Pair, float]]]:
    """By optimizer, accuracies at the rates for which both have the same seeds."""
    both = {name: [_accuracies(results, name, rate, norm) for rate in RATES] for name in OPTIMIZERS}
    done = [bool(one) and one.keys() == other.keys() for one, other in zip(*both.values(), strict=True)]
    return {name: [cell for cell, is_done in zip(cells, done, strict=True) if is_done] for name, cells in both.items()}


def _over_norms(one: Values, other: Values) -> tuple[dict[Pair, float], dict[Pair, float]]:
    """By seed, the means of both over their common norms: seeds are independent, norms are not."""
    found: list[dict[Pair, float]] = [{}, {}]
    for seed in sorted({seed for seed, _ in one.keys() & other.keys()}):
        norms = sorted(norm for own, norm in one.keys() & other.keys() if own == seed)
        for values, means in zip((one, other), found, strict=True):
            means[seed, None] = math.fsum(values[seed, norm] for norm in norms) / len(norms)
    return found[0], found[1]


def _lost_beside_the_best(cells: list[dict[Pair, float]]) -> dict[Pair, float]:
    """By seed, what is lost at the rates next to the best one: by one that is three times too large or too small."""
    means = [summarize(cell.values()).mean for cell in cells]
    best = means.index(max(means))
    beside = over([cells[i] for i in (best - 1, best + 1) if 0 <= i < len(cells)])
    return {pair: cells[best][pair] - value for pair, value in beside.items()}


def _verdicts(results: Results) -> list[Verdict]:
    norms = norms_in(results)
    ours, theirs = "sphere_sgd", "sgd"
    spreads: dict[str, dict[Pair, float]] = {name: {} for name in OPTIMIZERS}
    lost: dict[str, Values] = {name: {} for name in OPTIMIZERS}
    mean: dict[str, Values] = {name: {} for name in OPTIMIZERS}
    best: dict[str, Values] = {name: {} for name in OPTIMIZERS}
    for norm in norms:
        cells = _cells(results, norm)
        for pair in zip(cells[ours], cells[theirs], strict=True):
            found = [summarize(cell.values()) for cell in pair]
            if all(one.mean > TRAINED for one in found):
                number = len(spreads[ours])
                spreads[ours][number, None], spreads[theirs][number, None] = (one.deviation for one in found)
        for name, own in cells.items():
            if not own:
                continue
            top = max(own, key=lambda cell: summarize(cell.values()).mean)
            best[name] |= {(seed, norm): value for (seed, _), value in top.items()}
            mean[name] |= {(seed, norm): value for (seed, _), value in over(own).items()}
            lost[name] |= {(seed, norm): value for (seed, _), value in _lost_beside_the_best(own).items()}
    sphere, plain, rates = _matched(results, norms)

    def verdict(
        claim: str,
        one: Values,
        other: Values,
        judge: Callable[[dict[Pair, float], dict[Pair, float]], Answer],
        said: str,
    ) -> Verdict:
        left, right = _over_norms(one, other)
        return Verdict(claim, said, f"{spread(left, 1)} against {spread(right, 1)}", *judge(left, right))

    overlap = f"{len(rates)} of {len(RATES)} rates overlap"
    return [
        verdict(
            "SphereSGD is more stable: it loses less accuracy at the rates below and above its best one",
            lost[ours],
            lost[theirs],
            lambda one, other: better(other, one, LEAST),
            _SAID,
        ),
        verdict(
            "the same: mean accuracy over all rates",
            mean[ours],
            mean[theirs],
            lambda one, other: explored(better(one, other, LEAST)),
            _SAID,
        ),
        Verdict(
            f"the same: it varies less from seed to seed (deviation of accuracy, where both are over {TRAINED:g} %)",
            _SAID,
            f"{spread(spreads[ours], 1)} against {spread(spreads[theirs], 1)}",
            *explored(better(spreads[theirs], spreads[ours])),
        ),
        verdict(
            "SphereSGD is more accurate (each at its best rate)",
            best[ours],
            best[theirs],
            lambda one, other: better(one, other, LEAST),
            OWN,
        ),
        verdict(
            f"at the same effective rate both are level, within {LEAST:g} points ({overlap})",
            sphere,
            plain,
            lambda one, other: level(one, other, LEAST),
            OWN,
        ),
    ]


_SAID = "Sections 1.3 and 4: more stable, no experiment"
_DIFFERS = f"""\
- The paper says that optimization on spheres makes training more stable. It has no experiment with it, and does not say
  what is stable. The verdict is on the learning rate: how much accuracy is lost, on average over norms, by a rate about
  three times too small or too large. Each optimizer has its own best rate, so it does not matter that the same number
  means a larger step under SphereSGD. Two other readings are shown without a verdict. This choice was made when the
  results of rates from 0.01 on were known, which are against the claim in all three readings.
- A perceptron with two hidden layers on the digits of scikit-learn, momentum 0.9, batches of 64, 10 epochs, no weight
  decay; `paper` preset: ResNet-101 on CIFAR-10.
- Both start from the same weights, so at the same effective rate η/‖w‖². SphereSGD keeps it; under SGD weights grow and
  it falls. So accuracy is also shown against the mean effective rate of the whole run. Lines go from the smallest
  rate to the largest: under SGD they turn back where weights explode. The last verdict reads SGD's accuracy between its
  rates, where SphereSGD's effective rate lies within them. That is so at small rates; at larger ones the weights of SGD
  grow so much that its effective rate does not get as high as that of SphereSGD.
- Verdicts are on averages over norms, seed by seed. How much accuracy varies is compared norm by norm and rate by rate,
  where both are over {TRAINED:g} % on average: an optimizer that fails with all seeds does not vary.
- The best rate is chosen by the test images, which favours both a little. Rates go from {RATES[0]:g} to
  {RATES[-1]:g}.
- A run is called diverged when its loss became NaN, as with WeightNorm at large rates. In verdicts it counts as
  chance, {CHANCE:g} %, like runs that failed with finite losses. Lines of the loss end there.
- The smallest effect of interest is {LEAST:g} points of accuracy, half of the smallest gain that the paper reads off
  its tables. It was chosen after these runs, from the paper alone."""

STUDY = Study(
    name="geometry-sphere",
    line=f"SphereSGD against SGD at {len(RATES)} rates under five norms: accuracy, seeds, and matched effective rates",
    source=f"{SOURCE}, Sections 1.3, 2.5 and 4",
    minutes={"laptop": 3},
    plan=plan,
    read=read,
    curves=("loss", "invariant_lengths"),
)
