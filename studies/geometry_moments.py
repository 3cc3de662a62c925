"""Do γ² and β of a BatchNorm become the variance and mean of its input, once a training has converged?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .geometry import SOURCE, base, curve, parts_in, smaller
from .page import Block, Chart, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import OWN, UNTESTED, Answer, Verdict, below, explored, level

CONVERGING = "until the loss stays"
PLAIN, LARGE = "short", "short, first weights × 4"
GAPS = {
    "gamma_gap": "|γ² − σ²|",
    "beta_gap": "|β − μ|",
    "gamma_gap_unit": "|γ² − σ²|, rows of length 1",
    "beta_gap_unit": "|β − μ|, rows of length 1",
}
SHARES = {
    "gamma_share": "|γ² − σ²| / (γ² + σ²)",
    "gamma_share_unit": "the same, rows of length 1",
    "beta_share": "|β − μ| / √(γ² + σ²)",
}
# The paper calls γ² and β approximations and gives no bound. Below a third, γ² and σ² differ by less than a factor of
# two, and β and μ by less than about half of a standard deviation: a wide reading of the word.
NEAR = 1 / 3
EPOCHS = 160  # of the laptop preset, until the loss stays
SHORT = 12  # for the control
STABLE = 0.1  # the paper gives no bound: two successive quarters of the training differ by less than a tenth
CONVERGED = 0.05  # of the whole fall of the training loss happens in the last quarter of the training, or less
FACTOR = 2.0  # gaps that differ by less are called equal: the same factor as in NEAR


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by part."""
    one = replace(base(preset), probes=("moments",))
    long = one
    if preset == "laptop":
        one = replace(one, seeds=tuple(range(10)))
        long = replace(one, epochs=EPOCHS, seeds=one.seeds[1:9])  # seed 0 was used to choose the length
    short = replace(one, epochs=SHORT)
    return {CONVERGING: long, PLAIN: short, LARGE: replace(short, weight_scale=4.0)}


def read(results: Results) -> Page:
    """Curves of the loss and of the gaps, a table of their final values, and verdicts."""
    parts = parts_in(results)
    panels = {
        label: [mean_line(part, [curve(record, "moments", gap) for record in results.of(part)]) for part in parts]
        for gap, label in GAPS.items()
    }
    losses = {"": [mean_line("mean over seeds", [record.curve["loss"] for record in results.of(CONVERGING)])]}
    blocks: list[Block] = [
        Chart("gaps", "Gaps in the first residual block", "epoch", "mean over channels", panels, log=True),
        Chart("loss", f"Training loss, {CONVERGING}", "epoch", "loss", losses),
    ]
    for title, place in (("First norm of the first residual block", _first), ("Mean over all norms", _mean)):
        rows = [
            [part, spread(results.values(accuracy(), part), 1)]
            + [" → ".join(spread(_at(results, part, gap, place, epoch)) for epoch in (0, -1)) for gap in GAPS]
            for part in parts
        ]
        heads = ["training", "accuracy, %", *GAPS.values()]
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


def _quarters(values: list[float]) -> tuple[float, float]:
    """The means over the last quarter of the epochs, and over the quarter before."""
    size = max(1, len(values) // 4)
    last, before = values[-size:], values[-2 * size : -size] or values[-size:]
    return math.fsum(last) / len(last), math.fsum(before) / len(before)


def _has_converged(record: Record) -> bool:
    """Whether the training loss has nearly stopped falling; its last quarter is compared with the one before."""
    losses: list[float] = record.curve["loss"]
    last, before = _quarters(losses)
    return losses[0] > last and before - last <= CONVERGED * (losses[0] - last)


def _number_converged(results: Results) -> str:
    return f"{sum(map(_has_converged, results.of(CONVERGING)))} of {len(results.of(CONVERGING))}"


def _verdicts(results: Results) -> list[Verdict]:
    found = _converged(results)
    for gap, judged in (("gamma_gap", True), ("gamma_gap_unit", False)):
        large, plain = (_at(results, part, gap) for part in (LARGE, PLAIN))
        claim = f"{GAPS[gap]} does not depend on the size of the initial weights (within a factor of {FACTOR:g})"
        answer = level(_logarithms(large), _logarithms(plain), math.log10(FACTOR))
        ours = f"{spread(large)} against {spread(plain)}"
        found.append(Verdict(claim, OWN, ours, *(answer if judged else explored(answer))))
    return found


def _converged(results: Results) -> list[Verdict]:
    """The paper's claims about converged trainings: the gaps are small and stable. Other trainings are left out."""
    records = [record for record in results.of(CONVERGING) if _has_converged(record)]
    number = f"{_number_converged(results)} runs have converged"

    def tested(values: dict[Pair, float], bound: float) -> Answer:
        if len(records) < 2 <= len(results.of(CONVERGING)):
            return Answer(UNTESTED, number)
        answer = below(values, bound)
        return answer._replace(why=f"{answer.why}; {number}")

    def last(share: str) -> dict[Pair, float]:
        return {record.pair: _first(record, share)[-1] for record in records}

    def drift(gap: str) -> dict[Pair, float]:
        quarters = {record.pair: _quarters(_first(record, gap)) for record in records}
        return {pair: abs(after / before - 1) for pair, (after, before) in quarters.items()}

    small = "Section 3.1: a small value"
    near, unit, mean = (last(share) for share in SHARES)
    within = f"is below {NEAR:.2f}"
    found = [
        Verdict(f"γ² ends near σ²: {SHARES['gamma_share']} {within}", small, spread(near), *tested(near, NEAR)),
        Verdict(f"{SHARES['gamma_share_unit']}: {within}", small, spread(unit), *explored(tested(unit, NEAR))),
        Verdict(f"β ends near μ: {SHARES['beta_share']} {within}", small, spread(mean), *tested(mean, NEAR)),
    ]
    for gap in ("gamma_gap", "beta_gap"):
        values = drift(gap)
        claim = f"{GAPS[gap]} is stable: its means over the last two quarters differ by less than {100 * STABLE:g} %"
        found.append(Verdict(claim, "Section 3.1: stable", spread(values), *tested(values, STABLE)))
    return found


def _logarithms(values: dict[Pair, float]) -> dict[Pair, float]:
    return {pair: math.log10(value) for pair, value in values.items()}


_DIFFERS = f"""\
{smaller(EPOCHS)}
- The paper speaks of trainings that have converged. Here one has converged if at most {100 * CONVERGED:g} % of the
  whole fall of the training loss is left to the last quarter of the epochs; others are left out of the paper's claims.
  The length of the trainings was chosen by the loss of seed 0, which still fell after 100 epochs and is left out.
- The paper does not define small and stable. Small means here that γ² and σ² differ by less than a factor of two, and β
  and μ by less than about half of a standard deviation; stable means within {100 * STABLE:g} %.
- The paper shows one channel; we show the mean over the channels of the same norm, and over all norms.
- The gaps do not depend only on the function of a network: four times the weight before a norm gives the same outputs,
  and 16 times σ². So the gaps are also given with rows of length 1, and there are two short runs of {SHORT} epochs, one
  with initial weights four times as large. The last two rows compare them, by logarithms to base 10.
- The paper also says that weights before a norm grow as long as they are trained; then σ² grows with them."""

STUDY = Study(
    name="geometry-moments",
    line="γ² − σ² and β − μ of BatchNorm in trainings that have converged, with a control on the size of the weights",
    source=f"{SOURCE}, Section 3.1 and Figure 2",
    minutes={"laptop": 13},
    plan=plan,
    read=read,
    curves=("loss", "moments"),
)
