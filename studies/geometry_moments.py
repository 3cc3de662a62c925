"""Do γ² and β of a BatchNorm become the variance and mean of its input?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .geometry import DECAY, SOURCE, base, curve, parts_in, smaller
from .page import Block, Chart, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import OWN, Verdict, below, level

PLAIN, LARGE, DECAYED, SLOW = "as it is", "first weights × 4", "weight decay", "rate 0.001"
GAPS = {
    "gamma_gap": "|γ² − σ²|",
    "beta_gap": "|β − μ|",
    "gamma_gap_unit": "|γ² − σ²|, rows of length 1",
    "beta_gap_unit": "|β − μ|, rows of length 1",
}
SMALL = 0.1  # fractions below this count as small
FACTOR = 2.0  # gaps that differ by less are called equal


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by part."""
    one = replace(base(preset), probes=("moments",))
    if preset == "laptop":
        one = replace(one, seeds=(0, 1, 2, 3, 4))
    parts = {PLAIN: one, LARGE: replace(one, weight_scale=4.0), DECAYED: replace(one, weight_decay=DECAY)}
    return parts if preset == "paper" else {**parts, SLOW: replace(one, lr=0.001)}


def read(results: Results) -> Page:
    """Curves of the gaps, a table of their final values, and verdicts."""
    parts = parts_in(results)
    panels = {
        label: [mean_line(part, [curve(record, "moments", gap) for record in results.of(part)]) for part in parts]
        for gap, label in GAPS.items()
    }
    blocks: list[Block] = [
        Chart("gaps", "Gaps in the first residual block", "epoch", "mean over channels", panels, log=True)
    ]
    for title, place in (("First norm of the first residual block", _first), ("Mean over all norms", _mean)):
        rows = [
            [part, spread(results.values(accuracy(), part), 1)]
            + [" → ".join(spread(_at(results, part, gap, place, epoch)) for epoch in (0, -1)) for gap in GAPS]
            + [spread(_at(results, part, "gamma_share", place))]
            for part in parts
        ]
        heads = ["training", "accuracy, %", *GAPS.values(), "|γ² − σ²| / (γ² + σ²)"]
        blocks.append(Table(title, heads, rows, "After the first epoch → after the last; mean ± deviation over seeds."))
    return Page(_DIFFERS, _verdicts(results), blocks)


Place = Callable[[Record, str], list[float]]


def _first(record: Record, gap: str) -> list[float]:
    return curve(record, "moments", gap)


def _mean(record: Record, gap: str) -> list[float]:
    """Over all norms of the network."""
    return [math.fsum(epoch[gap]) / len(epoch[gap]) for epoch in record.curve["moments"]]


def _at(results: Results, part: str, gap: str, place: Place = _first, epoch: int = -1) -> dict[Pair, float]:
    return results.values(lambda record: place(record, gap)[epoch], part)


def _drift(record: Record, gap: str) -> float:
    """Relative difference of the mean over the last quarter of the epochs from that over the quarter before."""
    values = _first(record, gap)
    size = max(1, len(values) // 4)
    last, before = values[-size:], values[-2 * size : -size] or values[-size:]
    return abs(math.fsum(last) / len(last) - math.fsum(before) / len(before)) / (math.fsum(before) / len(before))


def _verdicts(results: Results) -> list[Verdict]:
    found = []
    for part in (SLOW, PLAIN):  # the paper's rate first; its own preset has no other
        if results.of(part):
            found += _converged(results, part, f"rate {plan(results.preset)[part].lr:g}")
    if results.of(PLAIN) and results.of(LARGE):
        for gap in ("gamma_gap", "gamma_gap_unit"):
            large, plain = (_at(results, part, gap) for part in (LARGE, PLAIN))
            claim = f"{GAPS[gap]} does not depend on the size of the initial weights (within a factor of {FACTOR:g})"
            answer = level(_logarithms(large), _logarithms(plain), math.log10(FACTOR))
            found.append(Verdict(claim, OWN, f"{spread(large)} against {spread(plain)}", *answer))
    return found


def _converged(results: Results, part: str, label: str) -> list[Verdict]:
    """The paper's claims about a converged training: the gaps are small and stable."""
    share = _at(results, part, "gamma_share")
    claim = f"{label}: γ² ends near σ²: |γ² − σ²| is below {100 * SMALL:g} % of γ² + σ²"
    found = [Verdict(claim, "Section 3.1: a small value", spread(share), *below(share, SMALL))]
    for gap in ("gamma_gap", "beta_gap"):
        drift = {record.pair: _drift(record, gap) for record in results.of(part)}
        claim = f"{label}: {GAPS[gap]} is stable: the last two quarters differ by less than {100 * SMALL:g} %"
        found.append(Verdict(claim, "Section 3.1: stable", spread(drift), *below(drift, SMALL)))
    return found


def _logarithms(values: dict[Pair, float]) -> dict[Pair, float]:
    return {pair: math.log10(value) for pair, value in values.items()}


_DIFFERS = f"""\
{smaller()}
- One run has the paper's learning rate of 0.001, all others 0.05; verdicts are on both rates, the paper's first. The
  paper is about networks that have converged: after 12 epochs they have not, least of all at 0.001.
- The paper does not define small and stable: 10 % is our choice. |β − μ| would have to be compared with σ,
  which the results do not contain: so only its stability is judged.
- The paper shows one channel; we show the mean over the channels of the same norm, and over all norms.
- The gaps do not depend only on the function of a network: four times the weight before a norm gives the same outputs,
  and 16 times σ². So there is a run whose initial weights are four times as large, and the gaps are also given with
  rows of length 1. The last two verdicts compare logarithms to base 10.
- geometry-prune removes channels from the runs "{PLAIN}" and "{DECAYED}"."""

STUDY = Study(
    name="geometry-moments",
    line="γ² − σ² and β − μ of BatchNorm over training, with controls on the size of the weights",
    source=f"{SOURCE}, Section 3.1 and Figure 2",
    minutes={"laptop": 3},
    plan=plan,
    read=read,
    curves=("moments",),
)
