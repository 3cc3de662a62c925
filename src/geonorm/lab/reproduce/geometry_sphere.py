"""Is training on spheres more stable? SphereSGD against SGD, from the same weights at the same rates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from ..recipe import Recipe
from ..statistics import summarize
from .geometry import LABELS, PAPER, SOURCE, groups_of, norms_in
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import Verdict, better, level

OPTIMIZERS = {"sgd": "SGD", "sphere_sgd": "SphereSGD"}
RATES: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
NAMES = LABELS | {"ln": "LayerNorm"}
LAPTOP = Recipe(norms=("bn", "ln", "gn(groups=4)", "wn", "cwn"), seeds=(0, 1, 2, 3, 4), epochs=10)
MARGIN = 1.0  # points of accuracy within which two are called level


def _part(optimizer: str, rate: float) -> str:
    return f"{OPTIMIZERS[optimizer]}, rate {rate:g}"


def plan(preset: str) -> dict[str, Recipe]:
    """The trainings, by optimizer and rate."""
    one = LAPTOP
    if preset == "paper":
        one = replace(PAPER, norms=("bn", "gn(groups=1)", groups_of(preset), "wn", "cwn"))
    one = replace(one, probes=("invariant_lengths",))
    return {_part(name, rate): replace(one, optimizer=name, lr=rate) for name in OPTIMIZERS for rate in RATES}


def read(results: Results) -> Page:
    """Tables by norm, curves of the loss, accuracy against the effective rate, and verdicts."""
    norms = norms_in(results)
    rows = []
    for norm in norms:
        for name, label in OPTIMIZERS.items():
            cells = [_accuracies(results, name, rate, norm) for rate in RATES]
            rows.append([NAMES[norm], label, *[spread(cell, 1) for cell in cells]])
    heads = ["norm", "optimizer", *[f"rate {rate:g}" for rate in RATES]]
    matched = {NAMES[norm]: [_against_rate(results, name, norm) for name in OPTIMIZERS] for norm in norms}
    losses = {
        f"rate {rate:g}": [
            mean_line(label, [record.curve["loss"] for record in _records(results, name, rate, norms[:1])])
            for name, label in OPTIMIZERS.items()
        ]
        for rate in (RATES if norms else ())
    }
    title = "Accuracy against the effective learning rate, over the whole training"
    blocks: list[Block] = [
        Table("Accuracy, %", heads, rows, "Mean ± deviation over seeds."),
        Chart("matched", title, "mean of η/‖w‖²", "accuracy, %", matched, log_x=True),
        Chart("losses", f"Training loss, {NAMES[norms[0]] if norms else ''}", "epoch", "loss", losses, log=True),
    ]
    return Page(_DIFFERS, _verdicts(results), blocks)


def _records(results: Results, optimizer: str, rate: float, norms: Iterable[str]) -> list[Record]:
    return [record for norm in norms for record in results.of(_part(optimizer, rate), norm=norm)]


def _accuracies(results: Results, optimizer: str, rate: float, norm: str) -> dict[Pair, float]:
    return results.values(accuracy(), _part(optimizer, rate), norm=norm)


def _effective(record: Record, rate: float) -> float:
    """Mean over epochs and weights of log10 η/‖w‖²; NaN for a training that broke."""
    lengths = [length for epoch in record.curve["invariant_lengths"] for length in epoch["part"]]
    if not all(0 < length < math.inf for length in lengths):
        return math.nan
    return math.fsum(math.log10(rate / length**2) for length in lengths) / len(lengths)


def _points(results: Results, optimizer: str, norm: str, seed: int | None = None) -> list[tuple[float, float]]:
    """Effective rate and accuracy at each rate from the smallest, of one seed or on average."""
    found = []
    for rate in RATES:
        records = [r for r in _records(results, optimizer, rate, [norm]) if seed in (None, r.choices["seed"])]
        rates = summarize([_effective(record, rate) for record in records])
        if rates.number:
            found.append((rates.mean, summarize([accuracy()(record) for record in records]).mean))
    return found


def _against_rate(results: Results, optimizer: str, norm: str) -> Line:
    points = _points(results, optimizer, norm)
    return Line(OPTIMIZERS[optimizer], [10**x for x, _ in points], [y for _, y in points])


def _matched(results: Results, norms: list[str]) -> tuple[dict[Pair, float], dict[Pair, float]]:
    """By seed and norm, mean accuracy of SphereSGD and of SGD at the same effective rates, read between its rates."""
    sphere: dict[Pair, float] = {}
    plain: dict[Pair, float] = {}
    for i, norm in enumerate(norms):
        for seed in sorted({record.choices["seed"] for record in results.records}):
            known = _points(results, "sgd", norm, seed)
            both = [(y, _between(known, x)) for x, y in _points(results, "sphere_sgd", norm, seed)]
            pairs = [(y, other) for y, other in both if other is not None]
            if pairs:
                sphere[seed, i] = math.fsum(y for y, _ in pairs) / len(pairs)
                plain[seed, i] = math.fsum(other for _, other in pairs) / len(pairs)
    return sphere, plain


def _between(points: list[tuple[float, float]], x: float) -> float | None:
    """The broken line through the points at x, where it rises to the right; nothing outside.

    It turns back where larger rates make the weights explode: those trainings are no match for any other.
    """
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1 != x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None


def _cells(results: Results, norm: str) -> dict[str, list[dict[Pair, float]]]:
    """By optimizer, accuracies at the rates that both have done with the same seeds."""
    both = {name: [_accuracies(results, name, rate, norm) for rate in RATES] for name in OPTIMIZERS}
    done = [bool(one) and one.keys() == other.keys() for one, other in zip(*both.values(), strict=True)]
    return {name: [cell for cell, is_done in zip(cells, done, strict=True) if is_done] for name, cells in both.items()}


def _verdicts(results: Results) -> list[Verdict]:
    norms = norms_in(results)
    spreads: dict[str, dict[Pair, float]] = {name: {} for name in OPTIMIZERS}
    mean: dict[str, dict[Pair, float]] = {name: {} for name in OPTIMIZERS}
    best: dict[str, dict[Pair, float]] = {name: {} for name in OPTIMIZERS}
    for i, norm in enumerate(norms):
        for name, cells in _cells(results, norm).items():
            for j, cell in enumerate(cells):
                spreads[name][j, i] = summarize(cell.values()).deviation
            if not cells:
                continue
            top = max(cells, key=lambda cell: summarize(cell.values()).mean)
            best[name] |= {(seed, i): value for (seed, _), value in top.items()}
            for pair in set.intersection(*[set(cell) for cell in cells]):
                mean[name][pair[0], i] = math.fsum(cell[pair] for cell in cells) / len(cells)
    sphere, plain = _matched(results, norms)
    said = "claimed, no experiment"

    def against(one: dict[Pair, float], other: dict[Pair, float]) -> str:
        return f"{spread(one, 1)} against {spread(other, 1)}"

    ours, theirs = "sphere_sgd", "sgd"
    return [
        Verdict(
            "SphereSGD varies less from seed to seed (deviation of accuracy, over norms and rates)",
            said,
            against(spreads[ours], spreads[theirs]),
            *better(spreads[theirs], spreads[ours]),
        ),
        Verdict(
            "SphereSGD bears more rates (mean accuracy over all rates)",
            said,
            against(mean[ours], mean[theirs]),
            *better(mean[ours], mean[theirs]),
        ),
        Verdict(
            "SphereSGD is more accurate (each at its best rate)",
            said,
            against(best[ours], best[theirs]),
            *better(best[ours], best[theirs]),
        ),
        Verdict(
            f"at the same effective rate both are level, within {MARGIN:g} point",
            "not asked",
            against(sphere, plain),
            *level(sphere, plain, MARGIN),
        ),
    ]


_DIFFERS = f"""\
- The paper proposes optimization on spheres and has no experiment with it.
- A perceptron with two hidden layers on the digits of scikit-learn, momentum 0.9, batches of 64, 10 epochs, no weight
  decay; at the paper's scale ResNet-101 on CIFAR-10.
- Both start from the same weights, so at the same effective rate η/‖w‖². SphereSGD keeps it; under SGD weights grow and
  it falls. So accuracy is also shown against the mean effective rate of the whole training. Lines go from the smallest
  rate to the largest: under SGD they turn back where weights explode. The last verdict reads SGD's accuracy between its
  rates, where SphereSGD's effective rate lies within them.
- Rates from {RATES[0]:g} to {RATES[-1]:g}; what bears more rates depends on this choice. Verdicts over norms and seeds
  together take these as independent, which they are only in part."""

STUDY = Study(
    name="geometry-sphere",
    line="SphereSGD against SGD at six rates under five norms: accuracy, seeds, and matched effective rates",
    source=f"{SOURCE}, Section 2.5",
    minutes={"laptop": 3},
    plan=plan,
    read=read,
    curves=("loss", "invariant_lengths"),
)
