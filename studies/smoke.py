"""A smoke: a minimal run of the trainings of a study on synthetic data, to show that they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geonorm.lab.choices import known, parse_evaluation

from .recipe import StudyRecipe
from .results import Record, Results

SAID = (
    "**A smoke: one epoch on a few synthetic samples instead of the data and images named below. It shows "
    "that the study runs; its figures say nothing about any claim.**"
)
_BATCH = 8
_FEW = {"train_size": 2 * _BATCH, "test_size": 2 * _BATCH}
_SIDES = {
    "digits": 8,
    "cifar10": 32,
    "cifar100": 32,
    "cifar100_subset": 32,
    "image_folder": 224,
    "celeba": 64,
    "marked_cifar10": 16,
}
_LARGEST = 64  # pixels: after ImageNet's stem and stages 2×2 are left
_LARGEST_MEASURED = 8  # if the sharpness is measured, which takes dozens of forward and backward passes
_CLASSES = {"celeba": 2, "marked_cifar10": 2, "cifar100": 8, "cifar100_subset": 8}  # the others have 4
_TABLES = ("compas", "adult", "subpopulations")
_GRAPHS = ("mutag", "ptc", "proteins", "regular_graphs")
# Networks for images at their full size, which take seconds for a few samples.
_LARGE = ("resnet18", "vgg16", "vgg19", "mobilenetv2", "densenet121", "efficientnetb0")
_SMALLER = {name: {"width": 0.125} for name in _LARGE} | {"resnet101": {"width": 0.125, "depth": 0.34}}


def shrunk(recipe: StudyRecipe) -> StudyRecipe:
    """The same norms, losses, corruptions and probes, for one epoch of one seed on data that need no files."""
    largest = _LARGEST_MEASURED if "sharpness" in recipe.probes else _LARGEST
    data, options = _stand_in(recipe.data, recipe.data_options, largest)
    return replace(
        recipe,
        data=data,
        data_options=options,
        model_options={**_SMALLER.get(recipe.model, {}), **recipe.model_options},
        evaluations=tuple(dict.fromkeys(map(shrunk_evaluation, recipe.evaluations))),
        seeds=recipe.seeds[:1],
        folds=min(2, recipe.folds),
        epochs=1,
        batch_size=_BATCH,
        processes=1,
    )


def shrunk_evaluation(text: str) -> str:
    """An attack in two steps; our own degraded images instead of the official ones, which are in files."""
    how = parse_evaluation(text)
    if how.name == "cifar10c":
        return f"contrast(severity={how.arguments['severity']})"
    return re.sub(r"\bsteps=\d+", "steps=2", text)


def as_planned(results: Results, parts: Mapping[str, StudyRecipe]) -> Results:
    """Results of a smoke, with its evaluations renamed to those of the plan."""

    def named(record: Record) -> Record:
        wanted = parts[record.part].evaluations
        return record._replace(figures={text: record.figures[shrunk_evaluation(text)] for text in wanted})

    return results._replace(records=tuple(map(named, results.records)))


def _stand_in(data: str, options: Mapping[str, Any], largest: int) -> tuple[str, dict[str, Any]]:
    """Synthetic data of the same kind, and their options; ``largest``: the largest side of images in pixels."""
    known(data, (*_SIDES, *_TABLES, *_GRAPHS), "data for a smoke")
    if data in _GRAPHS:
        return "regular_graphs", dict(_FEW)
    if data in _TABLES:
        own = options if data == "subpopulations" else {}
        return "subpopulations", {**own, **_FEW}
    side = options.get("side", options.get("size", _SIDES[data]))
    return "stripes", {**_FEW, "side": min(largest, side), "classes": _CLASSES.get(data, 4)}
