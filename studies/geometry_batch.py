"""Is a batch as large as the network is wide best?"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple, TypeAlias

from geonorm.lab.statistics import summarize

from .geometry import LAPTOP, LEAST, SOURCE, over
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import EXPLORATORY, HOLDS, OWN, UNDECIDED, Verdict, better

RATES = (0.005, 0.02, 0.08, 0.32)
EPOCHS, STEPS = "as many epochs", "as many steps"
# Widths, batch sizes, epochs, and epochs of the smallest batch if all make the same number of steps.
GRIDS = {
    "laptop": ((32, 128), (8, 32, 128, 512), 6, 1),
    "paper": ((128, 512), (32, 128, 512, 2048), 100, 20),
}
ONE = StudyRecipe(data="cifar10", data_options=LAPTOP.data_options, norms=("bn",), seeds=tuple(range(10)))

Grid: TypeAlias = Mapping[tuple[int, float], dict[Pair, float]]  # accuracies by batch and rate


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings: by what is equal for all batches, width, batch and rate."""
    widths, batches, epochs, first = GRIDS[preset]
    one = ONE
    if preset == "paper":
        one = replace(ONE, data_options={}, augment=("flip",))
    found = {}
    for width in widths:
        for batch in batches:
            for rate in RATES:
                own = replace(one, model_options={"hidden": width}, batch_size=batch, lr=rate)
                found[_part(EPOCHS, width, batch, rate)] = replace(own, epochs=epochs)
                found[_part(STEPS, width, batch, rate)] = replace(own, epochs=first * batch // batches[0])
    return found


def _part(budget: str, width: int, batch: int, rate: float) -> str:
    return f"{budget}, width {width}, batch {batch}, rate {rate:g}"


def read(results: Results) -> Page:
    """Accuracy against batch size, each at its best rate, and verdicts."""
    widths, batches, _, _ = GRIDS[results.preset]
    panels, blocks = {}, list[Block]()
    for budget in (EPOCHS, STEPS):
        tuned = {(w, b): _tuned(results, budget, w, b) for w in widths for b in batches}
        panels[budget] = [_line(width, {b: tuned[width, b][1] for b in batches}) for width in widths]
        rows = [
            [f"width {width}", *[_cell(*tuned[width, batch], is_width=width == batch) for batch in batches]]
            for width in widths
        ]
        heads = ["network", *[f"batch {batch}" for batch in batches]]
        note = "Mean ± deviation over seeds, at the rate in brackets. Bold: the batch as large as the width."
        blocks.append(Table(f"Accuracy, %, {budget}", heads, rows, note))
    chart = Chart("batches", "Accuracy, each batch at its best rate", "batch size", "accuracy, %", panels, log_x=True)
    return Page(_DIFFERS, _verdicts(results, widths, batches), [chart, *blocks])


def _tuned(results: Results, budget: str, width: int, batch: int) -> tuple[float, dict[Pair, float]]:
    """The rate with the best mean, and its accuracies; empty before all rates are done with all seeds."""
    found = {rate: results.values(accuracy(), _part(budget, width, batch, rate)) for rate in RATES}
    if len({frozenset(values) for values in found.values()}) > 1:
        return RATES[0], {}
    best = max(found, key=lambda rate: _mean(found[rate]))
    return best, found[best]


def _cell(rate: float, values: dict[Pair, float], *, is_width: bool) -> str:
    text = f"{spread(values, 1)} ({rate:g})" if values else ""
    return f"**{text}**" if is_width and text else text


def _line(width: int, values: dict[int, dict[Pair, float]]) -> Line:
    done = {batch: own.values() for batch, own in values.items() if own}
    seeds = list(zip(*done.values(), strict=False))
    return mean_line(f"width {width}", seeds)._replace(x=list(done))


def _verdicts(results: Results, widths: tuple[int, ...], batches: tuple[int, ...]) -> list[Verdict]:
    """The conjecture on the mean over widths and budgets, single ones without a verdict, and what would follow."""
    grids = {(budget, width): _grid(results, budget, width, batches) for budget in (EPOCHS, STEPS) for width in widths}
    done = {key: grid for key, grid in grids.items() if grid}
    compared = {key: _with_best_other(grid, key[1]) for key, grid in done.items()}
    found = []
    if len(done) == len(grids):
        found.append(_conjecture("a batch as large as the width is best (mean over widths and budgets)", compared))
    for (budget, width), one in compared.items():
        single = _conjecture(f"width {width}, {budget}: a batch of {width} is best", {(budget, width): one})
        found.append(single._replace(verdict=EXPLORATORY, p=math.nan))
    if len(done) == len(grids):
        found.append(_widths_differ(done, widths[0], widths[-1]))
    return found


def _grid(results: Results, budget: str, width: int, batches: tuple[int, ...]) -> Grid:
    """Accuracies by batch and rate; empty before all are done with all seeds."""
    found = {
        (batch, rate): results.values(accuracy(), _part(budget, width, batch, rate))
        for batch in batches
        for rate in RATES
    }
    return found if len({frozenset(values) for values in found.values()}) == 1 and all(found.values()) else {}


def _chosen_by_others(grid: Grid, batches: Container[int]) -> dict[Pair, float]:
    """Each seed's accuracy with the batch and rate that are best for the other seeds: its own luck chooses nothing."""
    cells = [values for (batch, _), values in grid.items() if batch in batches]
    pairs = list(cells[0])
    if len(pairs) < 2:
        return {}
    best = {pair: max(cells, key=lambda cell: fmean(cell[other] for other in pairs if other != pair)) for pair in pairs}
    return {pair: cell[pair] for pair, cell in best.items()}


class _Compared(NamedTuple):
    """A batch as large as the width, the best other one, and the same chosen with all seeds, which is hard to beat."""

    own: dict[Pair, float]
    other: dict[Pair, float]
    ahead: dict[Pair, float]


def _with_best_other(grid: Grid, width: int) -> _Compared:
    others = {batch for batch, _ in grid if batch != width}
    ahead = max((values for (batch, _), values in grid.items() if batch in others), key=_mean)
    return _Compared(_chosen_by_others(grid, {width}), _chosen_by_others(grid, others), ahead)


def _conjecture(claim: str, compared: Mapping[tuple[str, int], _Compared]) -> Verdict:
    """It holds against the best other batch, even if that is ahead by chance; it fails against one without luck."""
    own, other, ahead = (over(several) for several in zip(*compared.values(), strict=True))
    answer, hard = better(own, other, LEAST), better(own, ahead, LEAST)
    if answer.verdict == HOLDS:
        answer = hard if hard.verdict == HOLDS else answer._replace(verdict=UNDECIDED)
    return Verdict(claim, "conjectured, not tested", f"{spread(own, 1)} against {spread(other, 1)}", *answer)


def _widths_differ(grids: Mapping[tuple[str, int], Grid], narrow: int, wide: int) -> Verdict:
    def gain(width: int) -> dict[Pair, float]:
        large, small = (
            over([_chosen_by_others(grids[budget, width], {batch}) for budget in (EPOCHS, STEPS)])
            for batch in (wide, narrow)
        )
        return {pair: large[pair] - small[pair] for pair in large}

    more, less = gain(wide), gain(narrow)
    claim = f"from a batch of {narrow} to {wide} the wide network gains more than the narrow one (mean over budgets)"
    return Verdict(claim, OWN, f"{spread(more, 1)} against {spread(less, 1)}", *better(more, less, LEAST))


def _mean(values: Mapping[Pair, float]) -> float:
    return summarize(values.values()).mean


_DIFFERS = f"""\
- The paper conjectures that a batch as large as the width is best, and has no experiment.
- The laptop preset has two hidden layers of 32 or 128 features with BatchNorm on 5000 images of CIFAR-10, averaged
  down to 16×16; 2000 test images. `paper` preset: 128 and 512 features on all images.
- Large batches make fewer steps in the same number of epochs. So batches are compared twice: after the same number of
  epochs, and after the same number of steps, where large ones see more samples. The paper does not tell these apart,
  nor does it name a width: the verdict is on the mean of all four comparisons, and single ones have none.
- The rate is one of {", ".join(f"{rate:g}" for rate in RATES)}. In the verdicts each seed is tested at
  the rate, and against the other batch, that are best for the other seeds, so that its own luck chooses nothing. The
  conjecture holds only if a batch also beats the one that is ahead with all seeds. The tables show the best rate with
  all seeds, chosen by the test images.
- That the wide network gains more from a larger batch would follow from the conjecture; the paper does not say it.
- The smallest effect of interest is {LEAST:g} points of accuracy, half of the smallest gain that the paper reads off
  its tables. It was chosen after these runs, from the paper alone."""

STUDY = Study(
    name="geometry-batch",
    line="Accuracy against batch size for two widths: whether the best batch is as large as the network is wide",
    source=f"{SOURCE}, Section 4 and Appendix 5.1, a conjecture",
    minutes={"laptop": 8},
    plan=plan,
    read=read,
    curves=(),
)
