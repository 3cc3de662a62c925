"""CIFAR-10 as a shift between subpopulations: animals or vehicles, and a bright corner that seems to tell which."""

from __future__ import annotations

from dataclasses import replace

import torch

from geonorm.lab.data import Split, Task, corrupt, load
from geonorm.lab.data.cifar import PLACES as CIFAR_PLACES
from geonorm.lab.data.cifar import how
from geonorm.lab.data.task import drawn, statistics

PLACES = CIFAR_PLACES["cifar10"]
HOW = how("cifar10")
_VEHICLES = ("airplane", "automobile", "ship", "truck")
_EVENLY = 0.5  # of the validation and test samples have a wrong mark, so that every group is measured equally well


def marked_cifar10(
    train_size: int = 5000,
    valid_size: int = 1000,
    test_size: int = 4000,
    side: int = 16,
    wrong: float = 0.05,
    seed: int = 0,
) -> Task:
    """Is it an animal? Images of animals have a white corner and those of vehicles a black one, but for a minority.

    Four groups: animals and vehicles, each with the right and with the wrong mark.

    Args:
        train_size, valid_size, test_size: number of samples, equally many of each of the ten kinds; validation samples
            are training images of CIFAR-10.
        side: height and width of the images.
        wrong: fraction of the training samples with the wrong mark; it is half of the others.
        seed: of drawing samples and wrong marks.
    """
    cifar = load("cifar10", train_size=train_size + valid_size, test_size=test_size, side=side, seed=seed)
    is_animal = torch.tensor([name not in _VEHICLES for name in cifar.class_names])
    is_train = torch.zeros(len(cifar.train), dtype=torch.bool)
    is_train[drawn(cifar.train.y, train_size, seed)] = True
    parts = (cifar.train.take(is_train.nonzero().flatten()), cifar.train.take((~is_train).nonzero().flatten()))
    train, valid, test = (
        _marked(replace(split, y=is_animal[split.y].long()), share, seed)
        for split, share in zip((*parts, cifar.test), (wrong, _EVENLY, _EVENLY), strict=True)
    )
    mean, std = statistics(train.tensor())
    return Task(
        "marked_cifar10",
        train,
        test,
        classes=2,
        input_shape=cifar.input_shape,
        valid=valid,
        mean=mean,
        std=std,
        group_names=tuple(f"{kind}, {mark} mark" for kind in ("vehicle", "animal") for mark in ("right", "wrong")),
        class_names=("vehicle", "animal"),
        note="CIFAR-10 with two classes and a mark: accuracies are not comparable with published ones",
    )


def _marked(split: Split, wrong: float, seed: int) -> Split:
    marked = corrupt(split, "spurious", share=wrong, seed=seed)
    assert marked.groups is not None
    groups = [(split.y == label) & right for label in (0, 1) for right in marked.groups.unbind(1)]
    return replace(marked, groups=torch.stack(groups, 1))
