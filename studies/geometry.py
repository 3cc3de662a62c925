"""Common parts of the geometry studies: the paper's ResNet-101 on CIFAR, and a small ResNet on small images."""

from __future__ import annotations

from dataclasses import replace

from .recipe import StudyRecipe
from .results import Record, Results

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
}
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


def smaller(epochs: int = LAPTOP.epochs) -> str:
    """How the laptop preset differs from the paper's trainings."""
    return f"""\
- The laptop preset has a ResNet of 8 layers with 8, 16 and 32 channels on 5000 images of CIFAR-10, averaged down to
  16×16, instead of ResNet-101 on all of them; 2000 test images.
- It trains for {epochs} epochs instead of 200, at a rate of 0.05 instead of 0.001, at which so few steps learn
  little.
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


def curve(record: Record, probe: str, name: str, place: int = FIRST) -> list[float]:
    """One number of a probe in every epoch."""
    return [epoch[name][place] for epoch in record.curve[probe]]
