"""Common parts of the geometry studies: the paper's ResNet-101 on CIFAR, and a small ResNet on small images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .models.standardized import STANDARDIZED
from .recipe import StudyRecipe
from .results import Pair, Record, Results

SOURCE = "New interpretations of normalization methods"
DECAY = 5e-4
WITHOUT, WITH = "without weight decay", "with weight decay"
LABELS = {
    "bn": "BatchNorm",
    "gn": "GroupNorm",
    "gn(groups=4)": "GroupNorm",
    "gn(groups=1)": "LayerNorm",
    "in": "InstanceNorm",
    "wn": "WeightNorm",
    "cwn": "centered WeightNorm",
    "ws": "weight standardization",
    "sn": "SpectralNorm",
    STANDARDIZED: "weight standardization with GroupNorm",
    f"{STANDARDIZED}(groups=4)": "weight standardization with GroupNorm",
}
# The smallest effect of interest, in points of accuracy: half of the smallest gain by weight decay under noise or BIM
# that the paper reads off its tables (13.97 → 15.58 with BatchNorm in Table 2).
LEAST = 0.8
FIRST = 1  # the first convolution of the first residual block and its norm, which the paper examines; 0 is the stem

PAPER = StudyRecipe(
    data="cifar10",
    model="resnet101",
    norms=("bn",),
    seeds=(0, 1, 2),
    epochs=200,
    batch_size=64,
    lr=0.001,
    augment=("flip",),
)
LAPTOP = replace(
    PAPER,
    data_options={"side": 16, "train_size": 5000, "test_size": 2000},
    model="resnet20",
    model_options={"width": 0.5, "depth": 0.34},
    epochs=12,
    lr=0.05,
)
LONG = 51  # epochs of it: 4,029 steps, and weight decay alone shortens a weight by a factor of e in 4,000
_SIZES = {"cifar10": 50_000, "cifar100": 50_000, "cifar100_subset": 10_000}  # images to train on


def steps(recipe: StudyRecipe) -> int:
    """How many steps a training makes."""
    images: int = recipe.data_options.get("train_size", _SIZES[recipe.data])
    return recipe.epochs * math.ceil(images / recipe.batch_size)


def smaller(epochs: int = LAPTOP.epochs) -> str:
    """How the laptop preset differs from the paper's trainings."""
    made, theirs = steps(replace(LAPTOP, epochs=epochs)), steps(PAPER)
    return f"""\
- The laptop preset has a ResNet of 8 layers with 8, 16 and 32 channels on 5000 images of CIFAR-10, averaged down to
  16×16, instead of ResNet-101 on all of them; 2000 test images.
- It makes {made:,} steps in {epochs} epochs, at a rate of {LAPTOP.lr:g} throughout. The paper's 200 epochs at
  {PAPER.lr:g} are {theirs:,} steps if its batches have 64 images; it names no schedule. Steps times rate is
  {LAPTOP.lr * made:.0f} here and {PAPER.lr * theirs:.0f} there.
- The paper does not say batch size, momentum and weight decay; here 64, 0.9 and 0.0005."""


def base(preset: str) -> StudyRecipe:
    """The training that the studies vary."""
    return PAPER if preset == "paper" else LAPTOP


def groups_of(preset: str) -> str:
    """GroupNorm with the usual 32 groups, or 4 for the narrow layers of the laptop preset."""
    return "gn" if preset == "paper" else "gn(groups=4)"


def norms_in(results: Results) -> list[str]:
    """The norms of results, in the order of the plan."""
    return list(dict.fromkeys(record.choices["norm"] for record in results.records))


def parts_in(results: Results) -> list[str]:
    """The parts of results, in the order of the plan."""
    return list(dict.fromkeys(record.part for record in results.records))


def over(several: Sequence[Mapping[Pair, float]]) -> dict[Pair, float]:
    """The mean of several figures, pair by pair, where all of them are known: one claim about all of them."""
    pairs = [pair for pair in several[0] if all(pair in one for one in several)] if several else []
    return {pair: math.fsum(one[pair] for one in several) / len(several) for pair in pairs}


def curve(record: Record, probe: str, name: str, place: int = FIRST) -> list[float]:
    """One number of a probe in every epoch."""
    return [epoch[name][place] for epoch in record.curve[probe]]
