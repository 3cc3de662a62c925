"""How long the presets of the studies take that were never run: arithmetic from their operations.

``python -m benchmarks.preset_hours`` writes ``studies/hours.json``, which ``geonorm reproduce --list`` shows. The
operations of all trainings of a preset are counted with BatchNorm, on shapes alone. On two cores they take as long as
those of the laptop preset took in the stored results, in proportion. On a GPU they are divided by a rate; other norms
take longer.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from geonorm.lab.models import create_model
from studies import results, studies
from studies.hours import FILE
from studies.recipe import StudyRecipe
from studies.study import Study

STORED = Path(__file__).parents[1] / "results"
CORES = 2
RATE = 1e13  # operations of float32 per second, half of what an A100 can do without TF32
STEP = 0.01  # seconds of a step at least: hundreds of kernels have to be started
BACKWARD = 2  # its operations over those of forward
# Training samples, shape and classes of data that are not counted by the options of a recipe.
DATA: dict[str, tuple[int, tuple[int, ...], int]] = {
    "cifar10": (50_000, (3, 32, 32), 10),
    "cifar100": (50_000, (3, 32, 32), 100),
    "cifar100_subset": (10_000, (3, 32, 32), 100),
    "image_folder": (1_281_167, (3, 224, 224), 1000),  # ImageNet
    "celeba": (162_770, (3, 224, 224), 2),
    "digits": (1438, (1, 8, 8), 10),
    "subpopulations": (10_000, (11,), 2),
    "compas": (5_000, (10,), 2),
    "adult": (32_000, (100,), 2),
}


def main() -> None:
    found = {study.name: hours for study in studies() if (hours := hours_of(study)) is not None}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, hours in found.items():
        print(f"{name}: {hours['cores']:.0f} h on {CORES} cores, {hours['gpu']:.1f} h on a GPU")


def hours_of(study: Study) -> dict[str, float] | None:
    """Hours of the paper preset; nothing where it was measured."""
    if "paper" in study.minutes:
        return None
    stored = results.read(results.path_in(STORED, study.name, "laptop"))
    laptop = study.plan("laptop")
    took = sum(record.seconds for record in stored.records)
    done = sum(work(laptop[record.part])[0] for record in stored.records if record.part in laptop)
    whole = [work(recipe) for recipe in study.plan("paper").values()]
    runs = [len(recipe.runs()) for recipe in study.plan("paper").values()]
    operations = sum(number * one[0] for number, one in zip(runs, whole, strict=True))
    seconds = sum(number * max(one[0] / RATE, one[1] * STEP) for number, one in zip(runs, whole, strict=True))
    return {"cores": _short(took / done * operations / CORES / 3600), "gpu": _short(seconds / 3600)}


def work(recipe: StudyRecipe) -> tuple[float, float]:
    """Operations and steps of one training of a recipe."""
    samples, shape, classes = DATA[recipe.data]
    side = recipe.data_options.get("side", recipe.data_options.get("size"))
    shape = shape if side is None else (shape[0], side, side)
    samples = recipe.data_options.get("train_size", samples) * recipe.epochs
    each = operations_of(recipe.model, json.dumps(dict(recipe.model_options), sort_keys=True), shape, classes)
    return (1 + BACKWARD) * each * samples, samples / recipe.batch_size


@cache
def operations_of(model: str, options: str, shape: tuple[int, ...], classes: int) -> float:
    """Operations of forward for one sample, with BatchNorm."""
    given: dict[str, Any] = json.loads(options)
    network = create_model(model, "bn", classes=classes, input_shape=shape, **given).to("meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(torch.empty(2, *shape, device="meta"))
    return counter.get_total_flops() / 2


def _short(value: float) -> float:
    return float(f"{value:.2g}")


if __name__ == "__main__":
    main()
