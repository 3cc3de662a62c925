"""AugNorm on CIFAR-10: as good as BatchNorm, and the median worse than both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from .models.joint import JOINT
from .page import Block, Chart, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import OWN, Answer, Verdict, better, explored, no_worse

BATCH, FIXED, MEDIAN, LEARNED, ROBUST = "bn", "augbn(phi=1.5)", "median", "diffphi", "robustbn"
NORMS = {
    BATCH: "BatchNorm",
    FIXED: "AugNorm, φ=1.5",
    MEDIAN: "median",
    LEARNED: "AugNorm, φ learned",
    ROBUST: "robust center and spread",
}
NETWORKS = {
    "resnet18": "ResNet-18",
    "mobilenetv2": "MobileNet-V2",
    "densenet121": "DenseNet-121",
    "vgg19": "VGG-19",
    "efficientnetb0": "EfficientNet-B0",
}
PUBLISHED = {
    "resnet18": {BATCH: "95.40 ± 0.16", FIXED: "95.49 ± 0.14", MEDIAN: "93.51 ± 0.25"},
    "mobilenetv2": {BATCH: "92.40 ± 0.32", FIXED: "93.11 ± 0.11", MEDIAN: "89.97 ± 0.20"},
    "densenet121": {BATCH: "95.58 ± 0.17", FIXED: "95.49 ± 0.18", MEDIAN: "93.77 ± 0.15"},
    "vgg19": {BATCH: "93.79 ± 0.11", FIXED: "93.77 ± 0.19", MEDIAN: "91.18 ± 0.14"},
    "efficientnetb0": {BATCH: "90.98 ± 0.24", FIXED: "91.11 ± 0.17", MEDIAN: "90.48 ± 0.36"},
}
# In points. The median is 1.85 below BatchNorm in the mean over the networks of Table 1. Half of that tells whether a
# norm is worse; one that loses less than this half still matches BatchNorm.
LEAST = 0.9
GAIN = 0.35  # half of the gain of φ=1.5 on MobileNet-V2, 0.71
GAINED = "mobilenetv2"
CENTER = "vgg19, joint center"

FULL = StudyRecipe(
    data="cifar10",
    norms=(BATCH, FIXED, MEDIAN),
    seeds=(0, 1, 2, 3, 4),
    epochs=200,
    batch_size=128,
    lr=0.1,
    momentum=0.9,
    weight_decay=0.0005,
    decay="cosine",
    augment=("crop", "flip"),
)
SMALL = replace(
    FULL,
    data_options={"side": 16, "train_size": 10000},
    model="vgg19",
    model_options={"width": 0.125, "depth": 0.5},
    norms=tuple(NORMS),
    seeds=tuple(range(10)),
    epochs=5,
    augment=(),
)
_SIZES = {  # factors on width and depth; a training takes half a minute at most
    "resnet18": (0.125, 0.5),
    "mobilenetv2": (0.2, 0.3),
    "densenet121": (0.125, 0.25),
    "efficientnetb0": (0.2, 0.3),
}


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings of a preset, by network."""
    if preset == "paper":
        return {model: replace(FULL, model=model) for model in NETWORKS}
    parts = {"vgg19": SMALL}
    for model, (width, depth) in _SIZES.items():
        parts[model] = replace(
            SMALL,
            data_options={**SMALL.data_options, "test_size": 5000},
            model=model,
            model_options={"width": width, "depth": depth},
            norms=FULL.norms,
            seeds=tuple(range(20)) if model == GAINED else SMALL.seeds,
        )
    parts[CENTER] = replace(SMALL, norms=(JOINT,))
    return parts


def read(results: Results) -> Page:
    """The tables, the curves and the verdicts."""
    blocks: list[Block] = []
    values: dict[str, dict[str, dict[Pair, float]]] = {}
    panels = {}
    for model, name in NETWORKS.items():
        if not results.of(model):
            continue
        title = name if results.preset == "paper" else f"A small {name}"
        of = {norm: results.values(accuracy(), model, norm=norm) for norm in NORMS if results.of(model, norm=norm)}
        rows = [[NORMS[norm], PUBLISHED[model].get(norm, ""), spread(found)] for norm, found in of.items()]
        joint = results.values(accuracy(), CENTER) if model == "vgg19" else {}
        if joint:
            rows.append(["joint geometric median", "", spread(joint)])
        blocks.append(
            Table(title, ["norm", "published", "ours"], rows, "Test accuracy in %, mean ± standard deviation.")
        )
        panels[title] = [
            mean_line(NORMS[norm], [record.curve["accuracy"] for record in results.of(model, norm=norm)], 100)
            for norm in of
        ]
        values[model] = of
    if panels:
        blocks.append(Chart("accuracy", "Test accuracy", "epoch", "accuracy, %", panels))
    return Page(_DIFFERS, [*_verdicts(values), *_of_centers(results, values.get("vgg19", {}))], blocks)


def over_networks(values: Mapping[str, Mapping[str, Mapping[Pair, float]]], norm: str) -> dict[Pair, float]:
    """The mean over the networks for every seed that has been trained on all five."""
    columns = [values.get(model, {}).get(norm, {}) for model in NETWORKS]
    seeds = [pair for pair in columns[0] if all(pair in column for column in columns)]
    return {pair: fmean(column[pair] for column in columns) for pair in seeds}


def _matches(one: Mapping[Pair, float], other: Mapping[Pair, float]) -> Answer:
    return no_worse(one, other, LEAST)


def _better(one: Mapping[Pair, float], other: Mapping[Pair, float]) -> Answer:
    return better(one, other, LEAST)


def _verdicts(values: Mapping[str, Mapping[str, Mapping[Pair, float]]]) -> list[Verdict]:
    """The sentences on all networks, pooled; that on MobileNet-V2; and the single networks without a verdict."""
    found, further = [], []
    for claim, one, other, answer in (
        ("AugNorm at φ=1.5 improves or matches BatchNorm", FIXED, BATCH, _matches),
        ("BatchNorm is better than the median", BATCH, MEDIAN, _better),
        ("AugNorm at φ=1.5 is better than the median", FIXED, MEDIAN, _better),
    ):
        pooled = [over_networks(values, norm) for norm in (one, other)]
        if all(pooled):
            published = " against ".join(f"{_published(norm):.2f}" for norm in (one, other))
            said = " against ".join(map(spread, pooled))
            found.append(Verdict(f"Mean of five networks: {claim}", published, said, *answer(*pooled)))
        for model, of in values.items():
            if of.get(one) and of.get(other):
                further.append(_on(model, of, claim, one, other, explored(answer(of[one], of[other]))))
    of = values.get(GAINED, {})
    if of.get(FIXED) and of.get(BATCH):
        claim = "AugNorm at φ=1.5 is better than BatchNorm"
        found.append(_on(GAINED, of, claim, FIXED, BATCH, better(of[FIXED], of[BATCH], GAIN)))
    return [*found, *further]


def _published(norm: str) -> float:
    return fmean(float(of[norm].split()[0]) for of in PUBLISHED.values())


def _on(
    model: str, of: Mapping[str, Mapping[Pair, float]], claim: str, one: str, other: str, answer: Answer
) -> Verdict:
    published = f"{PUBLISHED[model][one]} against {PUBLISHED[model][other]}"
    ours = f"{spread(of[one])} against {spread(of[other])}"
    return Verdict(f"{NETWORKS[model]}: {claim}", published, ours, *answer)


def _of_centers(results: Results, of: Mapping[str, Mapping[Pair, float]]) -> list[Verdict]:
    """The joint geometric median, which the paper cites, beside its per-channel median and the mean."""
    joint, found = results.values(accuracy(), CENTER), []
    for claim, norm, answer in (
        ("the joint geometric median of whole samples is better than the median per channel", MEDIAN, _better),
        ("the joint geometric median of whole samples improves or matches BatchNorm", BATCH, _matches),
    ):
        if joint and of.get(norm):
            ours = f"{spread(joint)} against {spread(of[norm])}"
            found.append(Verdict(f"VGG-19: {claim}", OWN, ours, *answer(joint, of[norm])))
    return found


_DIFFERS = f"""\
- The `paper` preset is the published protocol: 200 epochs, batches of 128, SGD with rate 0.1 falling along a cosine,
  momentum 0.9, weight decay 0.0005, five seeds. The paper does not say whether images are augmented; ours are shifted
  and mirrored, as in pytorch-cifar, from which it takes its hyperparameters. It speaks of an 80/20 split; we use the
  official 50,000 and 10,000 images.
- The `laptop` preset keeps batches, rate, cosine, momentum and weight decay. It trains on 10,000 images of 16×16
  pixels, unaugmented, for 5 epochs (395 steps). The networks have fewer channels and blocks: VGG-19 and ResNet-18 an
  eighth of the width and half of the depth, DenseNet-121 an eighth and a quarter, MobileNet-V2 and EfficientNet-B0 a
  fifth of the width and 0.3 of the depth. VGG-19 is tested on all 10,000 test images, the others on 5,000 of them. Ten
  seeds, 20 for MobileNet-V2, on which the paper makes a claim of its own.
- These networks are far from the end of what they could learn: they classify about half of the images where the
  published ones classify nine of ten. Our verdicts are about such short trainings.
- The sizes were chosen with BatchNorm and seed 100 alone. The last epoch counts; nothing is chosen by looking at the
  test images.
- The paper speaks of most or all networks, so the claims are about their mean, for each seed; single networks are shown
  below them. A norm matches BatchNorm if it loses less than {LEAST:g} points, half of what the median loses in Table 1;
  that the median is worse does not hold if, beyond chance, it loses less than that. On MobileNet-V2 a gain counts from
  {GAIN:g} points, half of the published one.
- Before the other networks were trained there were results of VGG-19, which are among these means.
- The paper explains the median's figures by its sparse gradients ("likely"); this is not tested. Where several values
  equal the median, ours spreads its gradient over them.
- Learned φ and the robust spread are not in the paper's table. The learned φ moves 1/16 as far in a step as one without
  bounds and stays near 1.5.
- The joint geometric median is one point for all channels, which the papers cite and do not use: a norm around it, on
  the small VGG-19, is our question."""

STUDY = Study(
    name="augnorm-cifar",
    line="Networks on CIFAR-10 with BatchNorm, AugNorm at φ=1.5 and the median instead of the mean",
    source="AugNorm on images, Table 1",
    minutes={"laptop": 35},
    plan=plan,
    read=read,
    curves=("accuracy",),
)
