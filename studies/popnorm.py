"""Common parts of the studies of POP-Norm: the network, the protocol, and figures of a training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from .page import Line, mean_line
from .recipe import StudyRecipe
from .results import Pair, Record, Results

ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "ReLU"}
RUNNING, RECOMPUTED = "clean", "clean(recalibrated=true)"  # with the running statistics, or with recomputed ones

# Torch's initial weights of the VGG times √6 have the size of He et al. (2015), the usual one for ReLU.
HE = 6**0.5
# The paper's POP-Norm comes before every convolution and inner product.
EVERYWHERE = {"place": "before_all"}
# The paper's protocol for CIFAR. It names no augmentation.
PAPER = StudyRecipe(
    data="cifar100",
    model="vgg16",
    model_options=EVERYWHERE,
    norms=("bn", "pop"),
    evaluations=(RUNNING, RECOMPUTED),
    weight_scale=HE,
    epochs=77,  # 30,000 iterations
    batch_size=128,
    lr=0.1,
    momentum=0.9,
    weight_decay=5e-4,
    decay="step",
    milestones=(16 / 30, 24 / 30),
)
# The same schedule, at the same fractions of 1,185 iterations, on small images.
LAPTOP = replace(
    PAPER,
    data="cifar10",
    data_options={"side": 16, "train_size": 10000, "test_size": 4000},
    model_options={**EVERYWHERE, "width": 0.125, "depth": 0.3},
    seeds=(1, 2, 3, 4, 5, 6),  # seed 0 was used to choose settings
    epochs=15,  # the rate falls after 8 and after 12 of them: 16/30 and 24/30
)

# The paper's figures of training losses have no numbers. Their axes must reach ln C, the loss of guessing among C
# classes. Two curves can be told apart if they are two widths of a line apart, a fiftieth of that height ...
_VISIBLE = 1 / 50
# ... and a reader calls curves close that stay within a twentieth of the height.
_CLOSE = 1 / 20
_CLASSES = {"laptop": 10, "paper": 100}


def visible(preset: str) -> float:
    """The smallest difference of training losses that a figure of the paper could show."""
    return round(_VISIBLE * guessing(preset), 3)


def close(preset: str) -> float:
    """The difference of training losses up to which curves in a figure are close."""
    return round(_CLOSE * guessing(preset), 3)


def guessing(preset: str) -> float:
    """The loss of guessing: ln 10 with CIFAR-10, ln 100 with CIFAR-100."""
    return math.log(_CLASSES[preset])


def final_loss(record: Record) -> float:
    """The mean training loss of the last epoch."""
    return float(record.curve["loss"][-1])


def mean_loss(record: Record) -> float:
    """The mean training loss of all epochs: the area under the curve, smaller if the training is faster."""
    return fmean(record.curve["loss"])


def final_train_accuracy(record: Record) -> float:
    """Accuracy on the training samples during the last epoch, in per cent."""
    return 100 * float(record.curve["train_accuracy"][-1])


def loss_line(label: str, records: Iterable[Record]) -> Line:
    """The training loss over epochs."""
    return mean_line(label, [record.curve["loss"] for record in records])


def losses(results: Results, part: str, norm: str) -> dict[Pair, float]:
    """Final training losses of one norm of a part."""
    return results.values(final_loss, part, norm=norm)


def mean_losses(results: Results, part: str, norm: str) -> dict[Pair, float]:
    """Mean training losses of one norm of a part."""
    return results.values(mean_loss, part, norm=norm)


def mean_by_seed(parts: Sequence[Mapping[Pair, float]]) -> dict[Pair, float]:
    """The mean over several parts for each seed that has all of them: parts of one seed are not independent."""
    seeds = [pair for pair in parts[0] if all(pair in part for part in parts)]
    return {pair: sum(part[pair] for part in parts) / len(parts) for pair in seeds}


def seeds_of(records: Iterable[Record]) -> str:
    """The number of seeds, for the note of a table."""
    number = len({record.choices["seed"] for record in records})
    return f"{number} {'seed' if number == 1 else 'seeds'}; mean ± standard deviation."


SCALED_DOWN = """\
- Laptop preset: a VGG of five convolutions with an eighth of the channels, 10,000 images of CIFAR-10 averaged to 16×16,
  15 epochs of batches of 128: 1,185 iterations instead of 30,000. Rate, momentum and weight decay are the paper's, and
  the rate is divided by 10 at the same fractions of the training: 16/30 and 24/30.
- The paper names no augmentation for CIFAR, so there is none, in both presets.
- There is a POP-Norm before each convolution and before the last linear layer, as in the paper. It does not name its
  initial weights, and κ acts through their size: those of the VGG have the size that He et al. (2015) recommend.
- Width, depth, initial weights and the POP-Norm before the last layer were chosen for an earlier version of these
  pages, after about 30 runs of 5 epochs with seed 0, among other reasons because POP-Norm did best with them. With
  torch's smaller initial weights and no POP-Norm before the last layer κ=4 was worse than κ=1 and BatchNorm under
  sigmoid. Seed 0 is left out.
- Claims and smallest effects of interest were written down before the runs with this schedule. Results of the earlier
  version, 395 iterations at a constant rate, were known then."""
# For the pages with these trainings.
SHARED = """\
- The pages popnorm-kappa, popnorm-ablation and popnorm-accuracy share the runs of the VGG with κ=4 on CIFAR-10 (paper
  preset: CIFAR-100), and some others. No claim is on two of the pages, but they are not independent of each other."""
