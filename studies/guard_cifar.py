"""Broken training images: convolutional networks on CIFAR-10 with the guard and with alternatives to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .guard import (
    BATCH,
    CLEAN,
    GUARD,
    MARGIN,
    ROBUST,
    SEEDS,
    SOURCE,
    Fault,
    expectations,
    gaps,
    kept_at_all,
    line,
    mean_over,
    per_cent,
)
from .page import Block, Chart, Page, Table, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import OWN, Verdict, better, level

FAULTS = (
    Fault("Unscaled", "gain", 255),
    Fault("Offset", "offset", 50),
    Fault("Noise", "noise", 10),
    Fault("Gain", "gain", 20),
)
SHARES = (0.05, 0.2)
GROUP = "gn(groups=8)"


class Way(NamedTuple):
    """A way to train: its name, the norm, further settings of the recipe, and the fractions at which it was tried.

    ``short``: its name in the legend of a chart.
    """

    label: str
    norm: str
    settings: Mapping[str, Any]
    shares: Sequence[float] = SHARES
    short: str = ""


WAYS = {
    "plain": Way("BatchNorm", BATCH, {}),
    "group": Way("GroupNorm", GROUP, {}),
    "gradients": Way(
        "BatchNorm, gradients clipped at 1", BATCH, {"clip_gradients": 1.0}, SHARES[:1], "gradients clipped"
    ),
    "inputs": Way("BatchNorm, inputs clipped at 5 σ", BATCH, {"clip_inputs": 5.0}, SHARES, "inputs clipped"),
    "skipping": Way(
        "BatchNorm, samples without a finite loss dropped", BATCH, {"skip_nonfinite": True}, SHARES[:1], "dropping"
    ),
    "robust": Way("robust center and spread", ROBUST, {}, SHARES[:1], "robust"),
    "guard": Way("guard", GUARD, {}),
}
# Expected for the guard, at the first fraction: accuracy minus that on clean images, by network and fault.
EXPECTED = {
    ("vgg16", "Unscaled"): -1.9,
    ("vgg16", "Offset"): -1.6,
    ("vgg16", "Noise"): -2.6,
    ("vgg16", "Gain"): -0.4,
    ("resnet20", "Unscaled"): 0.3,
    ("resnet20", "Noise"): 0.2,
}
DEEP = {"resnet20": "ResNet-20", "mobilenetv2": "MobileNet-V2"}
DEEP_FAULTS = (FAULTS[0], FAULTS[2])
DEEP_SHARE = SHARES[0]

SMALL = StudyRecipe(
    data="cifar10",
    data_options={"side": 16, "train_size": 4000, "test_size": 2000},
    model="vgg16",
    model_options={"width": 0.25, "depth": 0.34},
    seeds=SEEDS,
    epochs=4,
    lr=0.05,
)
FEW = {"side": 16, "train_size": 2000, "test_size": 2000}
SIZES = {"resnet20": {"width": 0.5}, "mobilenetv2": {"width": 0.25, "depth": 0.34}}


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings: a small VGG by way, and two deeper networks."""
    full = preset == "paper"
    base = replace(SMALL, data_options={}, model_options={}, epochs=100, augment=("crop", "flip")) if full else SMALL
    found = {
        _part("vgg16", way): replace(
            base,
            norms=(how.norm,),
            corruptions=(CLEAN, *[fault.at(share) for fault in FAULTS for share in how.shares]),
            **how.settings,
        )
        for way, how in sorted(WAYS.items(), key=lambda item: item[0] not in ("plain", "guard"))  # these two first
    }
    broken = (CLEAN, *[fault.at(DEEP_SHARE) for fault in DEEP_FAULTS])
    for model in DEEP:
        deep = replace(base, model=model, corruptions=broken)
        deep = deep if full else replace(deep, model_options=SIZES[model], data_options=FEW)
        found |= {_part(model, way): replace(deep, norms=(WAYS[way].norm,)) for way in ("plain", "guard")}
    return found


def _part(model: str, way: str) -> str:
    return f"{model}, {way}"


def read(results: Results) -> Page:
    """Accuracy by fault, share and way, and verdicts."""
    ways = [way for way in WAYS if results.of(_part("vgg16", way))]
    blocks: list[Block] = []
    if ways:
        blocks += [_chart(results, ways), *[_table(results, share, ways) for share in SHARES]]
    rows = []
    for model, name in DEEP.items():
        for way in ("plain", "guard"):
            if results.of(_part(model, way)):
                cases = [CLEAN, *[fault.at(DEEP_SHARE) for fault in DEEP_FAULTS]]
                rows.append([name, WAYS[way].label, *[spread(_of(results, model, way, case)) for case in cases]])
    if rows:
        heads = ["network", "way", "clean", *[f"{one.label}, {per_cent(DEEP_SHARE)}" for one in DEEP_FAULTS]]
        blocks.append(Table("Deeper networks: accuracy, %", heads, rows, _NOTE))
    if blocks:
        blocks.append(_expected(results))
    return Page(_DIFFERS, [*_verdicts(results), *_deep_verdicts(results)], blocks)


_NOTE = "On clean test images, mean ± standard deviation over seeds."


def _of(results: Results, model: str, way: str, corruption: str) -> dict[Pair, float]:
    return results.values(accuracy(), _part(model, way), corruption=corruption)


def _table(results: Results, share: float, ways: Sequence[str]) -> Table:
    there = [way for way in ways if share in WAYS[way].shares]
    cases = [CLEAN, *[fault.at(share) for fault in FAULTS]]
    rows = [[WAYS[way].label, *[spread(_of(results, "vgg16", way, case)) for case in cases]] for way in there]
    heads = ["way", "clean", *[fault.label for fault in FAULTS]]
    return Table(f"A small VGG, {per_cent(share)} of the images broken: accuracy, %", heads, rows, _NOTE)


def _expected(results: Results) -> Table:
    faults = {fault.label: fault for fault in FAULTS}
    names = {"vgg16": "A small VGG", **DEEP}
    cases = {}
    for (model, label), wanted in EXPECTED.items():
        own, clean = (_of(results, model, "guard", case) for case in (faults[label].at(SHARES[0]), CLEAN))
        cases[f"{names[model]}, {label.lower()}, {per_cent(SHARES[0])}"] = (wanted, gaps(own, clean))
    return expectations("Accuracy of the guard minus that on clean images, in points", cases)


def _chart(results: Results, ways: Sequence[str]) -> Chart:
    panels = {}
    for fault in FAULTS:
        of = {
            way: {0.0: _of(results, "vgg16", way, CLEAN)}
            | {100 * share: _of(results, "vgg16", way, fault.at(share)) for share in WAYS[way].shares}
            for way in ways
        }
        panels[fault.label] = [line(WAYS[way].short or WAYS[way].label, of[way]) for way in ways]
    ticks = {0.0: "0"} | {100 * share: f"{100 * share:g}" for share in SHARES}
    title = "A small VGG: accuracy over the share of broken training images"
    return Chart("shares", title, "broken, %", "accuracy, %", panels, ticks=ticks)


def _verdicts(results: Results) -> list[Verdict]:
    """For the small VGG: whether the guard keeps its accuracy, and whether it beats each of the other ways."""
    found = []
    clean = {way: _of(results, "vgg16", way, CLEAN) for way in WAYS}
    guard = {fault: {share: _of(results, "vgg16", "guard", fault.at(share)) for share in SHARES} for fault in FAULTS}
    if clean["guard"] and clean["plain"]:
        found.append(_match("A small VGG", clean["guard"], clean["plain"]))
    for fault in FAULTS:
        cases = {per_cent(share): values for share, values in guard[fault].items()}
        if clean["guard"] and all(cases.values()):
            answer, ours = kept_at_all(clean["guard"], cases)
            claim = f"A small VGG, {fault.label.lower()}: at {' and '.join(cases)} the guard stays within {MARGIN:g} "
            found.append(Verdict(f"{claim}points of its clean accuracy", OWN, ours, *answer))
    for share in SHARES:
        own = mean_over([guard[fault][share] for fault in FAULTS])
        if own and clean["guard"]:
            claim = f"A small VGG, {per_cent(share)}, mean of the faults: the guard stays within {MARGIN:g} points"
            ours = f"{spread(own)} against {spread(clean['guard'])} clean"
            found.append(Verdict(f"{claim} of its clean accuracy", OWN, ours, *level(own, clean["guard"], MARGIN)))
        for way, how in WAYS.items():
            if way == "guard" or share not in how.shares:
                continue
            other = mean_over([_of(results, "vgg16", way, fault.at(share)) for fault in FAULTS])
            if own and other:
                claim = f"A small VGG, {per_cent(share)}, mean of the faults: the guard is better than {how.label}"
                found.append(Verdict(claim, OWN, f"{spread(own)} against {spread(other)}", *better(own, other)))
    return found


def _deep_verdicts(results: Results) -> list[Verdict]:
    found = []
    for model, name in DEEP.items():
        clean = {way: _of(results, model, way, CLEAN) for way in ("plain", "guard")}
        if not all(clean.values()):
            continue
        found.append(_match(name, clean["guard"], clean["plain"]))
        for fault in DEEP_FAULTS:
            own, other = (_of(results, model, way, fault.at(DEEP_SHARE)) for way in ("guard", "plain"))
            if own and other:
                where = f"{name}, {fault.label.lower()}, {per_cent(DEEP_SHARE)}"
                answer = level(own, clean["guard"], MARGIN)
                claim = f"{where}: the guard stays within {MARGIN:g} points of its clean accuracy"
                found.append(Verdict(claim, OWN, f"{spread(own)} against {spread(clean['guard'])} clean", *answer))
                claim = f"{where}: the guard is better than BatchNorm"
                found.append(Verdict(claim, OWN, f"{spread(own)} against {spread(other)}", *better(own, other)))
    return found


def _match(where: str, own: dict[Pair, float], other: dict[Pair, float]) -> Verdict:
    claim = f"{where}, clean: the guard matches BatchNorm (within {MARGIN:g} points)"
    return Verdict(claim, OWN, f"{spread(own)} against {spread(other)}", *level(own, other, MARGIN))


_DIFFERS = f"""\
- No paper has the guard: all questions are ours. The `paper` preset trains the full networks on all images.
- A fraction of the training images is broken, the test images are not. *Unscaled*: values times 255. *Offset*: 50
  standard deviations are added. *Noise*: normal, of standard deviation 10, where values are from 0 to 1. *Gain*:
  values times 20. Broken images keep their labels, and leave fewer images to learn from: even a network that
  ignored them would lose a little.
- A small VGG: one convolution in each of five stages, with 16 to 128 channels. {SMALL.data_options["train_size"]:,}
  images, averaged down to 16×16, {SMALL.epochs} epochs, batches of {SMALL.batch_size}, SGD with rate {SMALL.lr:g} and
  momentum 0.9; {SMALL.data_options["test_size"]:,} test images.
- ResNet-20 with half of the channels and MobileNet-V2 with a quarter of channels and a third of the blocks see
  {FEW["train_size"]:,} images, with BatchNorm and the guard only, so that ten seeds fit into minutes.
- Inputs are clipped at 5 standard deviations of the clean images, which are known here: estimated from broken images,
  they would clip farther out.
- A sample without a finite loss is dropped from the loss; where none has one the step is skipped. Nothing here is
  NaN: it differs from BatchNorm only where values overflow.
- The learning rate is constant over the few epochs, so the accuracies of single runs spread by 2 to 3 points:
  claims about one fault stay undecided more often than claims about the mean of all four.
- GroupNorm has 8 groups. The guard is `guardbn`, with k=3."""

STUDY = Study(
    name="guard-cifar",
    line="Broken training images on CIFAR-10: the guard against BatchNorm, GroupNorm, clipping, dropping and robustbn",
    source=SOURCE,
    minutes={"laptop": 14},
    plan=plan,
    read=read,
    curves=(),
)
