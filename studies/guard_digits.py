"""Broken training samples on digits: six kinds of faults, four fractions, two batch sizes."""

from __future__ import annotations

from dataclasses import replace

from .guard import (
    BATCH,
    CLEAN,
    GUARD,
    LAYER,
    MARGIN,
    NORMS,
    SEEDS,
    SOURCE,
    Fault,
    expectations,
    kept_at_all,
    line,
    mean_over,
    per_cent,
    same_to_the_digit,
)
from .page import Block, Chart, Page, Table, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import OWN, Verdict, better, level

FAULTS = (
    Fault("Offset", "offset", 50),
    Fault("Heavy tails", "heavy_tails", 1),
    Fault("Gain", "gain", 20),
    Fault("One pixel", "feature", 100),
    Fault("Unscaled", "gain", 255),
    Fault("Noise", "noise", 10),
)
SHARES = (0.02, 0.1, 0.3, 0.4)
FEW = SHARES[:3]  # the fractions at which the guard should keep its accuracy
SIZES = (64, 16)
EXPECTED = {  # expected for the guard, by batch size, fault and fraction
    (64, "Offset", 0.1): 97.9,
    (64, "Offset", 0.3): 96.5,
    (16, "Offset", 0.1): 95.6,
    (64, "Heavy tails", 0.1): 97.6,
    (64, "Heavy tails", 0.3): 97.0,
    (64, "Gain", 0.1): 98.1,
    (64, "One pixel", 0.1): 97.5,
    (64, "Unscaled", 0.02): 98.1,
    (64, "Unscaled", 0.1): 98.3,
    (64, "Unscaled", 0.3): 97.3,
}

DIGITS = StudyRecipe(
    norms=tuple(NORMS),
    corruptions=(CLEAN, *[fault.at(share) for fault in FAULTS for share in SHARES]),
    seeds=SEEDS,
    epochs=10,
)


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by batch size. Nothing is published: the ``paper`` preset has more seeds and epochs."""
    one = replace(DIGITS, seeds=tuple(range(30)), epochs=50) if preset == "paper" else DIGITS
    return {part_of(size): replace(one, batch_size=size) for size in SIZES}


def part_of(size: int) -> str:
    """The part for a batch size."""
    return f"batch {size}"


def read(results: Results) -> Page:
    """A table and a chart for each batch size, and the verdicts."""
    blocks: list[Block] = []
    verdicts: list[Verdict] = []
    for size in SIZES:
        part = part_of(size)
        if results.of(part):
            blocks += [_chart(results, part), _table(results, part)]
            verdicts += _verdicts(results, part)
    if blocks:
        blocks.append(_expected(results))
    return Page(_DIFFERS, verdicts, blocks)


def _of(results: Results, part: str, norm: str, corruption: str) -> dict[Pair, float]:
    return results.values(accuracy(), part, norm=norm, corruption=corruption)


def _table(results: Results, part: str) -> Table:
    rows = [["none", "", *[spread(_of(results, part, norm, CLEAN)) for norm in NORMS]]]
    for fault in FAULTS:
        for share in SHARES:
            cells = [spread(_of(results, part, norm, fault.at(share))) for norm in NORMS]
            rows.append([fault.label, per_cent(share), *cells])
    note = "Accuracy on clean test samples in %, mean ± standard deviation over seeds."
    return Table(f"Digits, {part}", ["fault", "share", *NORMS.values()], rows, note)


def _expected(results: Results) -> Table:
    faults = {fault.label: fault for fault in FAULTS}
    cases = {
        f"batch {size}, {label.lower()}, {per_cent(share)}": (
            wanted,
            _of(results, part_of(size), GUARD, faults[label].at(share)),
        )
        for (size, label, share), wanted in EXPECTED.items()
    }
    return expectations("Accuracy of the guard in %", cases)


def _chart(results: Results, part: str) -> Chart:
    panels = {
        fault.label: [
            line(
                name,
                {0.0: _of(results, part, norm, CLEAN)}
                | {100 * share: _of(results, part, norm, fault.at(share)) for share in SHARES},
            )
            for norm, name in NORMS.items()
        ]
        for fault in FAULTS
    }
    name = part.replace(" ", "-")
    title = f"Digits, {part}: accuracy over the share of broken training samples"
    return Chart(name, title, "broken, %", "accuracy, %", panels)


def _verdicts(results: Results, part: str) -> list[Verdict]:
    found = []
    clean = {norm: _of(results, part, norm, CLEAN) for norm in NORMS}
    if clean[GUARD] and clean[BATCH]:
        claim = f"{part}, clean: the guard is BatchNorm to the digit"
        found.append(same_to_the_digit(claim, clean[GUARD], clean[BATCH]))
        claim = f"{part}, clean: the guard matches BatchNorm (within {MARGIN:g} points)"
        found.append(Verdict(claim, OWN, _ours(clean[GUARD], clean[BATCH]), *level(clean[GUARD], clean[BATCH], MARGIN)))
    many = []
    for fault in FAULTS:
        of = {norm: [_of(results, part, norm, fault.at(share)) for share in SHARES] for norm in NORMS}
        if not all(clean[norm] and all(of[norm]) for norm in (BATCH, LAYER, GUARD)):
            continue
        where = f"{part}, {fault.label.lower()}"
        kept = dict(zip(map(per_cent, FEW), of[GUARD], strict=False))
        *least, last = kept
        for shares in (least, [last]):
            answer, ours = kept_at_all(clean[GUARD], {share: kept[share] for share in shares})
            claim = f"{where}: at {' and '.join(shares)} the guard stays within {MARGIN:g} points of its clean accuracy"
            found.append(Verdict(claim, OWN, ours, *answer))
        guard, layer, batch = (mean_over(of[norm][: len(FEW)]) for norm in (GUARD, LAYER, BATCH))
        three = ", ".join(kept)
        claim = f"{where}, mean of {three}: the guard is level with LayerNorm (within {MARGIN:g} points)"
        found.append(Verdict(claim, OWN, _ours(guard, layer), *level(guard, layer, MARGIN)))
        claim = f"{where}, mean of {three}: the guard is better than BatchNorm"
        found.append(Verdict(claim, OWN, _ours(guard, batch), *better(guard, batch)))
        many.append(of[GUARD][-1])
    if many:
        most = mean_over(many)
        claim = f"{part}, mean of the faults: at {per_cent(SHARES[-1])} the guard stays within {MARGIN:g} points"
        ours = f"{spread(most)} against {spread(clean[GUARD])} clean"
        found.append(Verdict(claim, OWN, ours, *level(most, clean[GUARD], MARGIN)))
    return found


def _ours(one: dict[Pair, float], other: dict[Pair, float]) -> str:
    return f"{spread(one)} against {spread(other)}"


_DIFFERS = f"""\
- No paper has the guard: all questions are ours, and the `paper` preset is the same with more seeds and epochs.
- A fraction of the training samples is broken, the test samples are not. *Offset*: 50 standard deviations of all values
  are added. *Heavy tails*: Cauchy noise on every value. *Gain*: values times 20. *One pixel*: the same pixel is 100.
  *Unscaled*: values times 255. *Noise*: normal, of standard deviation 10, where values are from 0 to 1. Broken samples
  keep their labels.
- The network standardizes its inputs by mean and deviation of the samples before they were broken.
- Digits: 8×8 pixels, a network of two hidden layers of 64 units, SGD with rate 0.1 and momentum 0.9, 10 epochs.
- The guard is `guardbn`: BatchNorm with samples farther than 3 median distances pulled in during training. It
  distinguishes broken samples from the others as long as they are fewer than half of the batch. Fractions are of all
  training samples, and batches have more or fewer by chance: of 64 with 40 % broken one in fifteen has half or more, of
  16 with 30 % one in thirteen. Such a batch first ruins the running statistics: [guard-limits](guard-limits.md)
  recomputes them.
- Within {MARGIN:g} points means that the whole confidence interval of the difference is; one test sample is 0.28
  points. A claim about several fractions holds if it holds at each of them, and does not hold if it fails at one. The
  margin was chosen before the runs."""

STUDY = Study(
    name="guard-digits",
    line="Six kinds of broken training samples on digits, from 2 to 40 %: BatchNorm, LayerNorm, robustbn and the guard",
    source=SOURCE,
    minutes={"laptop": 9},
    plan=plan,
    read=read,
    curves=(),
)
