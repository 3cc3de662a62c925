"""Which φ, and which spread: a grid from the median to the midrange, on clean and on corrupted training samples."""

from __future__ import annotations

import math
from dataclasses import replace

from ..recipe import Recipe
from ..statistics import summarize
from .augnorm_cifar import SMALL
from .page import Block, Chart, Line, Page, Table, spread
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import Verdict, better, level

PHIS = (1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 5.0, math.inf)
FEW_PHIS = (1.0, 1.5, 2.0, 4.0, math.inf)
_TOLD = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, math.inf)  # at the axis: others would overlap
SPREADS = ("rms", "mean_abs", "robust")
PEER = "ln"
CORRUPTIONS = {
    "clean": "Clean",
    "offset": "Offset",
    "gain": "Gain",
    "heavy_tails": "Heavy tails",
    "feature": "One pixel",
}
MARGIN = 1.0  # points: about three of the 359 test digits


def spec(phi: float, kind: str) -> str:
    """The norm of a place on the grid."""
    return f"augbn(phi={phi:g}, spread={kind})"


DIGITS = Recipe(
    norms=(*[spec(phi, kind) for kind in SPREADS for phi in PHIS], PEER),
    corruptions=tuple(CORRUPTIONS),
    seeds=(0, 1, 2, 3, 4),
    epochs=10,
)
IMAGES = replace(
    SMALL,
    norms=tuple(spec(phi, kind) for kind in ("rms", "robust") for phi in FEW_PHIS),
    corruptions=("clean", "gain"),
    seeds=(0, 1, 2),
)


def plan(preset: str) -> dict[str, Recipe]:
    """The trainings of a preset, by set."""
    if preset == "paper":
        full = replace(
            IMAGES, data_options={}, model="resnet18", model_options={}, epochs=200, augment=("crop", "flip")
        )
        return {"digits": replace(DIGITS, seeds=tuple(range(10))), "cifar10": full}
    small = {"side": 16, "train_size": 5000, "test_size": 5000}
    return {"digits": DIGITS, "cifar10": replace(IMAGES, data_options=small)}


NAMES = {"digits": "Digits", "cifar10": "CIFAR-10"}


def read(results: Results) -> Page:
    """Tables and curves over φ, and the verdicts."""
    blocks: list[Block] = []
    for part, name in NAMES.items():
        kinds = [kind for kind in SPREADS if any(results.of(part, norm=spec(phi, kind)) for phi in _phis(part))]
        for kind in kinds:
            blocks.append(_table(results, part, f"{name}, spread {kind}", kind))
        if kinds:
            blocks.append(_chart(results, part, kinds))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _written(phi: float) -> str:
    return "∞" if math.isinf(phi) else f"{phi:g}"


def _phis(part: str) -> tuple[float, ...]:
    return PHIS if part == "digits" else FEW_PHIS


def _corruptions(results: Results, part: str) -> list[str]:
    there = {record.choices["corruption"] for record in results.of(part)}
    return [corruption for corruption in CORRUPTIONS if corruption in there]


def _of(results: Results, part: str, norm: str, corruption: str) -> dict[Pair, float]:
    return results.values(accuracy(), part, norm=norm, corruption=corruption)


def _table(results: Results, part: str, title: str, kind: str) -> Table:
    corruptions = _corruptions(results, part)
    norms = {_written(phi): spec(phi, kind) for phi in _phis(part)}
    if results.of(part, norm=PEER):
        norms["LayerNorm"] = PEER
    rows = [[label, *[spread(_of(results, part, norm, one)) for one in corruptions]] for label, norm in norms.items()]
    note = "Accuracy on clean test samples in %, mean ± standard deviation over seeds."
    return Table(title, ["φ", *[CORRUPTIONS[one] for one in corruptions]], rows, note)


def _chart(results: Results, part: str, kinds: list[str]) -> Chart:
    """Over 1 − 1/φ, which has a place for ∞."""
    places = {phi: 1 - 1 / phi for phi in _phis(part)}
    panels = {}
    for corruption in _corruptions(results, part):
        lines = []
        for kind in kinds:
            found = {
                place: summarize(_of(results, part, spec(phi, kind), corruption).values())
                for phi, place in places.items()
            }
            found = {place: one for place, one in found.items() if one.number}
            bands = [[one.mean + sign * one.deviation for one in found.values()] for sign in (-1, 1)]
            lines.append(Line(f"spread {kind}", list(found), [one.mean for one in found.values()], *bands))
        peer = summarize(_of(results, part, PEER, corruption).values())
        if peer.number:
            lines.append(Line("LayerNorm", [0, 1], [peer.mean, peer.mean]))
        panels[CORRUPTIONS[corruption]] = lines
    ticks = {place: _written(phi) for phi, place in places.items() if phi in _TOLD}
    label = "φ (1: median, 2: mean, ∞: midrange)"
    return Chart(part, f"{NAMES[part]}: accuracy over φ", label, "accuracy, %", panels, ticks=ticks)


def _verdicts(results: Results) -> list[Verdict]:
    mean, fixed, robust = spec(2.0, "rms"), spec(1.5, "rms"), spec(1.5, "robust")
    found = []
    for part, name in NAMES.items():
        for corruption in _corruptions(results, part):
            of = {norm: _of(results, part, norm, corruption) for norm in (mean, fixed, robust, PEER)}
            where = f"{name}, {CORRUPTIONS[corruption].lower()}"
            if corruption == "clean":
                answer = level(of[fixed], of[mean], MARGIN)
                claim = f"{where}: φ=1.5 is within {MARGIN:g} point of the mean"
                found.append(Verdict(claim, _NONE, _ours(of[fixed], of[mean]), *answer))
                continue
            for claim, one, other in (
                ("φ=1.5 is better than the mean", fixed, mean),
                ("φ=1.5 with robust spread is better than BatchNorm", robust, mean),
                ("φ=1.5 with robust spread is better than LayerNorm", robust, PEER),
            ):
                if of[one] and of[other]:
                    answer = better(of[one], of[other])
                    found.append(Verdict(f"{where}: {claim}", _NONE, _ours(of[one], of[other]), *answer))
    return found


def _ours(one: dict[Pair, float], other: dict[Pair, float]) -> str:
    return f"{spread(one)} against {spread(other)}"


_NONE = "not tested"
_DIFFERS = """\
- There is no published figure: the paper names the choice of φ as future work.
- A tenth of the training samples is corrupted. *Offset*: 10 standard deviations are added. *Gain*: values times 20.
  *Heavy tails*: Cauchy noise on every value. *One pixel*: the same pixel is 100. Test samples stay clean.
- φ=2 with the spread `rms` is BatchNorm.
- Digits: 8×8 pixels, a network of two hidden layers of 64 units, SGD with rate 0.1 and momentum 0.9, batches of 64.
- CIFAR-10, `laptop` preset: the small VGG of [augnorm-cifar](augnorm-cifar.md), on 5,000 images. `paper` preset:
  ResNet-18 with the protocol of that study."""

STUDY = Study(
    name="augnorm-phi",
    line="Accuracy over φ, from the median to the midrange, with three spreads, on clean and on corrupted samples",
    source="new; named as future work in AugNorm on images, section 6",
    minutes={"laptop": 12},
    plan=plan,
    read=read,
    curves=(),
)
