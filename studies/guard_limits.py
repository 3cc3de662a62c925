"""Limits of the guard: junk that is not far away, half of a batch broken, a minority, small batches, other k."""

from __future__ import annotations

from collections.abc import Mapping
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
    line,
    per_cent,
    same_to_the_digit,
)
from .page import Block, Chart, Page, Table, spread
from .recipe import StudyRecipe
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import OWN, Verdict, better, level

KS = (1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
OFFSET, UNSCALED = Fault("offset", "offset", 50), Fault("unscaled", "gain", 255)
WHITE = Fault("white frames", "stuck", 1)
WHITE_SHARES = (0.1, 0.3)
HALVES = (0.4, 0.5, 0.6)
SHARE = 0.1  # fraction of broken samples, by default
SIZES = (4, 8, 16, 64)
SMALL_SHARES = (SHARE, 0.3)
FEW = 0.05  # the fraction of the minority
MINORITY = f"minority(share={FEW:g}, strength=6)"
THREE = {norm: NORMS[norm] for norm in (BATCH, LAYER, GUARD)}
BROKEN = OFFSET.at(SHARE)
AGAIN = "clean(recalibrated=true)"  # on the training samples, broken ones included, in batches of 256

DIGITS = StudyRecipe(norms=tuple(THREE), seeds=SEEDS, epochs=10)
IMAGES = StudyRecipe(
    data="cifar10",
    data_options={"side": 16, "train_size": 2000, "test_size": 2000},
    model="vgg16",
    model_options={"width": 0.25, "depth": 0.34},
    seeds=SEEDS,
    epochs=4,
    lr=0.05,
)


def guard_of(k: float) -> str:
    """The norm with a radius of k median distances; for 3 it is ``guardbn``."""
    return GUARD if k == 3 else f"guardbn(guard={k:g})"


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by question."""
    digits, images = DIGITS, IMAGES
    if preset == "paper":
        digits = replace(DIGITS, seeds=tuple(range(30)), epochs=50)
        images = replace(IMAGES, data_options={}, model_options={}, epochs=100, augment=("crop", "flip"))
    halves = (fault.at(share) for fault in (OFFSET, UNSCALED) for share in HALVES)
    white = tuple(WHITE.at(share) for share in WHITE_SHARES)
    found = {
        "digits": replace(digits, corruptions=(CLEAN, *white, *halves, MINORITY, BROKEN), evaluations=(CLEAN, AGAIN)),
        "images": replace(images, norms=(BATCH, GUARD), corruptions=(CLEAN, *white, UNSCALED.at(SHARE))),
        "digits, other k": replace(
            digits, norms=tuple(guard_of(k) for k in KS if k != 3), corruptions=(CLEAN, BROKEN, MINORITY)
        ),
        "images, other k": replace(
            images, norms=tuple(guard_of(k) for k in KS if k != 3), corruptions=(CLEAN, UNSCALED.at(SHARE))
        ),
    }
    for size in SIZES[:-1]:
        rate = digits.lr * size / digits.batch_size  # at 0.1, BatchNorm learns nothing with 4 samples
        found[f"digits, batch {size}"] = replace(
            digits,
            batch_size=size,
            lr=rate,
            corruptions=(CLEAN, *map(OFFSET.at, SMALL_SHARES)),
            evaluations=(CLEAN, AGAIN),
        )
    return found


def read(results: Results) -> Page:
    """A table for each question, curves over k, and verdicts."""
    blocks: list[Block] = []
    if results.of("digits"):
        blocks += [_half(results), _small(results), _minority(results), _expected(results)]
    if results.of("digits") and results.of("images"):
        blocks += [_white(results), *_by_k(results)]
    return Page(_DIFFERS, _verdicts(results), blocks)


_MEASURED = "guard, statistics recomputed"
_NOTE = "Accuracy on clean test samples in %, mean ± standard deviation over seeds."


def _of(results: Results, part: str, norm: str, corruption: str, how: str = CLEAN) -> dict[Pair, float]:
    return results.values(accuracy(how), part, norm=norm, corruption=corruption)


def _of_k(results: Results, part: str, k: float, corruption: str) -> dict[Pair, float]:
    return _of(results, part if k == 3 else f"{part}, other k", guard_of(k), corruption)


def _of_batch(results: Results, size: int, norm: str, corruption: str, how: str = CLEAN) -> dict[Pair, float]:
    return _of(results, "digits" if size == SIZES[-1] else f"digits, batch {size}", norm, corruption, how)


def _group(results: Results, norm: str, group: int) -> dict[Pair, float]:
    """The accuracy of the majority, 0, or of the minority, 1."""

    def figure(record: Record) -> float:
        return 100 * float(record.figures[CLEAN]["groups"][group])

    part = "digits" if norm in THREE else "digits, other k"
    return results.values(figure, part, norm=norm, corruption=MINORITY)


def _half(results: Results) -> Table:
    rows = []
    for fault in (OFFSET, UNSCALED):
        for share in HALVES:
            cells = [spread(_of(results, "digits", norm, fault.at(share))) for norm in THREE]
            again = spread(_of(results, "digits", GUARD, fault.at(share), AGAIN))
            rows.append([fault.label, per_cent(share), *cells, again])
    return Table("Half of the batch broken: digits", ["fault", "share", *THREE.values(), _MEASURED], rows, _NOTE)


def _small(results: Results) -> Table:
    rows = []
    for size in SIZES:
        for words, case in (("clean", CLEAN), *[(f"offset, {per_cent(one)}", OFFSET.at(one)) for one in SMALL_SHARES]):
            if _of_batch(results, size, GUARD, case):
                cells = [spread(_of_batch(results, size, norm, case)) for norm in THREE]
                rows.append([str(size), words, *cells, spread(_of_batch(results, size, GUARD, case, AGAIN))])
    return Table("Small batches: digits", ["batch", "samples", *THREE.values(), _MEASURED], rows, _NOTE)


def _minority(results: Results) -> Table:
    norms = THREE | {guard_of(k): f"guard, k={k:g}" for k in KS if k != 3}
    rows = [[name, *[spread(_group(results, norm, group)) for group in (0, 1)]] for norm, name in norms.items()]
    note = f"{per_cent(FEW)} of the training samples, and half of the test samples, are six times as large, and valid."
    return Table("A valid minority: digits, accuracy in %", ["norm", "majority", "minority"], rows, note)


def _expected(results: Results) -> Table:
    cases = {
        f"a valid minority, {name}": (wanted, _group(results, GUARD, group))
        for group, (name, wanted) in enumerate((("majority", 98.2), ("minority", 96.3)))
    }
    return expectations("Accuracy of the guard in %", cases)


def _white(results: Results) -> Table:
    rows = [
        ["digits", NORMS[norm], *[spread(_of(results, "digits", norm, case)) for case in _whites()]] for norm in THREE
    ]
    rows += [
        ["CIFAR-10", NORMS[norm], *[spread(_of(results, "images", norm, case)) for case in _whites()]]
        for norm in (BATCH, GUARD)
    ]
    heads = ["data", "norm", "clean", *map(per_cent, WHITE_SHARES)]
    return Table("White frames among the training samples", heads, rows, _NOTE)


def _whites() -> list[str]:
    return [CLEAN, *[WHITE.at(share) for share in WHITE_SHARES]]


_PLACES = {"digits": ("Digits", BROKEN), "images": ("CIFAR-10", UNSCALED.at(SHARE))}


def _by_k(results: Results) -> list[Block]:
    panels, rows = {}, []
    for part, (name, broken) in _PLACES.items():
        of = {case: {k: _of_k(results, part, k, case) for k in KS} for case in (CLEAN, broken)}
        words = f"{per_cent(SHARE)} broken"
        panels[name] = [line(case, values) for case, values in (("clean", of[CLEAN]), (words, of[broken]))]
        for case, label in ((CLEAN, "clean"), (broken, words)):
            batch = spread(_of(results, part, BATCH, case))
            rows.append([name, label, batch, *[spread(of[case][k]) for k in KS]])
    heads = ["data", "samples", "BatchNorm", *[f"k={k:g}" for k in KS]]
    ticks = {k: f"{k:g}" for k in KS}
    chart = Chart("k", "Accuracy over k", "k, median distances", "accuracy, %", panels, ticks=ticks)
    return [chart, Table("The radius", heads, rows, _NOTE)]


def _verdicts(results: Results) -> list[Verdict]:
    found = []
    clean = {norm: _of(results, "digits", norm, CLEAN) for norm in THREE}

    def add(claim: str, how: str, one: Mapping[Pair, float], other: Mapping[Pair, float]) -> None:
        if one and other:
            answer = better(one, other) if how == "better" else level(one, other, MARGIN)
            found.append(Verdict(claim, OWN, f"{spread(one)} against {spread(other)}", *answer))

    again = "with recomputed statistics the guard"
    within = f"stays within {MARGIN:g} points of its clean accuracy"
    for fault in (OFFSET, UNSCALED):
        for share in HALVES:
            own = _of(results, "digits", GUARD, fault.at(share))
            add(f"Digits, {fault.label}, {per_cent(share)}: the guard {within}", "level", own, clean[GUARD])
            own = _of(results, "digits", GUARD, fault.at(share), AGAIN)
            add(f"Digits, {fault.label}, {per_cent(share)}: {again} {within}", "level", own, clean[GUARD])
    for size in SIZES:
        own, batch = (_of_batch(results, size, norm, CLEAN) for norm in (GUARD, BATCH))
        if own and batch:
            claim = f"Digits, batches of {size}, clean: the guard is BatchNorm to the digit"
            found.append(same_to_the_digit(claim, own, batch))
        claim = f"Digits, batches of {size}, clean: the guard matches BatchNorm (within {MARGIN:g} points)"
        add(claim, "level", own, batch)
        broken, other = (_of_batch(results, size, norm, BROKEN) for norm in (GUARD, BATCH))
        where = f"Digits, batches of {size}, offset, {per_cent(SHARE)}"
        add(f"{where}: the guard {within}", "level", broken, own)
        if size != SIZES[-1]:
            spoilt, repaired = (
                _of_batch(results, size, GUARD, OFFSET.at(SMALL_SHARES[-1]), how) for how in (CLEAN, AGAIN)
            )
            many = f"Digits, batches of {size}, offset, {per_cent(SMALL_SHARES[-1])}"
            add(f"{many}: the guard {within}", "level", spoilt, own)
            add(f"{many}: {again} {within}", "level", repaired, own)
        add(f"{where}: the guard is better than BatchNorm", "better", broken, other)
    for group, name in ((0, "majority"), (1, "minority")):
        of = {norm: _group(results, norm, group) for norm in THREE}
        where = f"Digits, a valid minority, accuracy on the {name}"
        add(f"{where}: the guard is better than BatchNorm", "better", of[GUARD], of[BATCH])
        add(f"{where}: the guard is level with LayerNorm (within {MARGIN:g} points)", "level", of[GUARD], of[LAYER])
    for share in WHITE_SHARES:
        case = WHITE.at(share)
        for part, name in (("digits", "Digits"), ("images", "CIFAR-10")):
            own, other = (_of(results, part, norm, case) for norm in (GUARD, BATCH))
            add(f"{name}, white frames, {per_cent(share)}: the guard is better than BatchNorm", "better", own, other)
    for part, (name, worse) in _PLACES.items():
        for case, words in ((CLEAN, "clean"), (worse, f"{per_cent(SHARE)} broken")):
            for k in KS:
                if k != 3:
                    claim = f"{name}, {words}: k={k:g} is level with k=3 (within {MARGIN:g} points)"
                    add(claim, "level", _of_k(results, part, k, case), _of_k(results, part, 3, case))
    return found


_DIFFERS = f"""\
- No paper has the guard: all questions are ours. The `paper` preset has more seeds and epochs on digits, and the whole
  VGG-16 on all images.
- Digits as in [guard-digits](guard-digits.md). CIFAR-10: the small VGG of [guard-cifar](guard-cifar.md) on
  {IMAGES.data_options["train_size"]:,} images.
- *Offset*: 50 standard deviations are added. *Unscaled*: values times 255. *White frames*: every value is 1, the
  largest of a valid sample; the label stays. Such a sample is not far from the others, and nothing pulls it.
- Fractions are of all training samples: a batch has more or fewer by chance, and a small one often more than half.
- Such a batch first ruins the running statistics, to which each of the last batches contributes a tenth. *Statistics
  recomputed*: after training, on the same training samples including the broken ones, in batches of 256, where
  more than half are hardly ever broken. `geonorm.recalibrate` does that.
- For batches smaller than 64 the learning rate is reduced in proportion: at a rate of 0.1 a network
  with BatchNorm learned nothing in batches of 4. The guard is off in batches of fewer than 4 samples.
- In a valid minority nothing is broken: its samples are six times as large, in training and in the test."""

STUDY = Study(
    name="guard-limits",
    line="What the guard does not tolerate: white frames, half of a batch broken, small batches; a valid minority; k",
    source=SOURCE,
    minutes={"laptop": 5},
    plan=plan,
    read=read,
    curves=(),
)
