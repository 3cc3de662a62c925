"""Is a batch as large as the network is wide best?"""

from __future__ import annotations

import math
from dataclasses import replace

from geonorm.lab.statistics import LEVEL, summarize

from .geometry import LAPTOP, SOURCE
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import FAILS, OWN, UNDECIDED, Answer, Verdict, better

RATES = (0.005, 0.02, 0.08, 0.32)
EPOCHS, STEPS = "as many epochs", "as many steps"
# Widths, batch sizes, epochs, and epochs of the smallest batch if all make the same number of steps.
GRIDS = {
    "laptop": ((32, 128), (8, 32, 128, 512), 6, 1),
    "paper": ((128, 512), (32, 128, 512, 2048), 100, 20),
}
ONE = StudyRecipe(data="cifar10", data_options=LAPTOP.data_options, norms=("bn",))


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
    found = []
    said = "conjectured, not tested"
    for budget in (EPOCHS, STEPS):
        tuned = {(w, b): _tuned(results, budget, w, b)[1] for w in widths for b in batches}
        for width in widths:
            others = {b: tuned[width, b] for b in batches if b != width and tuned[width, b]}
            own = tuned[width, width]
            if not own or len(others) < len(batches) - 1:
                continue  # some batches are unfinished, and one of them may be the best
            best = max(others, key=lambda batch: _mean(others[batch]))
            claim = f"width {width}, {budget}: a batch of {width} is best"
            ours = f"{spread(own, 1)} against {spread(others[best], 1)} with a batch of {best}"
            found.append(Verdict(claim, said, ours, *_against_best(own, others[best], len(others))))
        narrow, wide = widths[0], widths[-1]
        more, less = (_gain(tuned[width, wide], tuned[width, narrow]) for width in (wide, narrow))
        if not more or not less:
            continue
        claim = f"{budget}: from a batch of {narrow} to {wide} the wide network gains more than the narrow one"
        ours = f"{spread(more, 1)} against {spread(less, 1)}"
        found.append(Verdict(claim, OWN, ours, *better(more, less)))
    return found


def _mean(values: dict[Pair, float]) -> float:
    return summarize(values.values()).mean


def _against_best(own: dict[Pair, float], best: dict[Pair, float], rivals: int) -> Answer:
    """Whether a batch is better than the best of several rivals, which may be ahead by chance: p is corrected."""
    found = better(own, best)
    if math.isnan(found.p) or _mean(own) >= _mean(best):
        return found
    p = min(1.0, rivals * found.p)
    return Answer(FAILS if p < LEVEL else UNDECIDED, f"{found.why}, p times {rivals} for as many others", p)


def _gain(one: dict[Pair, float], other: dict[Pair, float]) -> dict[Pair, float]:
    return {pair: one[pair] - other[pair] for pair in one if pair in other}


_DIFFERS = f"""\
- The paper conjectures that a batch as large as the width is best, and has no experiment.
- The laptop preset has two hidden layers of 32 or 128 features with BatchNorm on 5000 images of CIFAR-10, averaged
  down to 16×16; 2000 test images. `paper` preset: 128 and 512 features on all images.
- Large batches make fewer steps in the same number of epochs. So batches are compared twice: after the same number of
  epochs, and after the same number of steps, where large ones see more samples.
- The rate is the best of {", ".join(f"{rate:g}" for rate in RATES)} for each batch and width. It is chosen by the
  test images, which favours all of them a little.
- A batch is best if it beats the best of the others. Of three others one may beat it by chance: where the best of them
  is ahead, p is multiplied by three.
- That the wide network gains more from a larger batch would follow from the conjecture; the paper does not say it."""

STUDY = Study(
    name="geometry-batch",
    line="Accuracy against batch size for two widths: whether the best batch is as large as the network is wide",
    source=f"{SOURCE}, Section 4 and Appendix 5.1, a conjecture",
    minutes={"laptop": 4},
    plan=plan,
    read=read,
    curves=(),
)
