"""Data without files: scikit-learn's digits, and a synthetic task with a shift between subpopulations."""

from __future__ import annotations

import math

import torch

from ..extras import require
from .task import Split, Task, check_share, drawn, statistics


def digits(test_share: float = 0.2, seed: int = 0) -> Task:
    """1797 handwritten digits of 8×8 pixels; part of scikit-learn.

    Args:
        test_share: the fraction of samples for testing.
        seed: of the split, which is ours: no split is published.
    """
    check_share(test_share)
    found = require("sklearn.datasets", "scikit-learn").load_digits()
    x = torch.from_numpy(found.images).float().unsqueeze(1) / 16
    y = torch.from_numpy(found.target).long()
    is_test = torch.zeros(len(y), dtype=torch.bool)
    is_test[drawn(y, round(test_share * len(y)), seed)] = True
    train = Split(x[~is_test], y[~is_test])
    mean, std = statistics(x[~is_test])
    return Task(
        "digits",
        train,
        Split(x[is_test], y[is_test]),
        classes=10,
        input_shape=(1, 8, 8),
        mean=mean,
        std=std,
        class_names=tuple("0123456789"),
        official=False,
    )


def subpopulations(
    train_size: int = 2000,
    test_size: int = 2000,
    minority: float = 0.05,
    test_minority: float = 0.5,
    signal: float = 1.0,
    seed: int = 0,
) -> Task:
    """Two classes in 11 dimensions: ten informative ones, and a louder spurious one.

        x = (±signal/√10 + N(0, 1), ten times;  ±1 + N(0, 0.1²)) with the sign of the label

    In the last dimension the sign is wrong for the minority. A model that relies on it is right for the majority and
    wrong for the minority, which the groups show. From the other ten, at best a fraction Φ(signal) can be classified.

    Args:
        train_size, test_size: number of samples.
        minority, test_minority: fraction of samples whose last dimension disagrees with the label; half of the test
            samples, so that every group is measured equally well.
        signal: distance of a class from the middle, in standard deviations.
        seed: of the samples.
    """
    for name, share in (("minority", minority), ("test_minority", test_minority)):
        if not 0 <= share <= 1:
            raise ValueError(f"expected {name} to be a fraction from 0 to 1 (got {share})")
    for name, size in (("train_size", train_size), ("test_size", test_size)):
        if size < 2:
            raise ValueError(f"expected {name} to be a whole number from 2 (got {size})")
    generator = torch.Generator().manual_seed(seed)
    train = _subpopulations(train_size, minority, signal, generator)
    test = _subpopulations(test_size, test_minority, signal, generator)
    mean, std = statistics(train.tensor())
    return Task(
        "subpopulations",
        train,
        test,
        classes=2,
        input_shape=(11,),
        mean=mean,
        std=std,
        group_names=("0, agrees", "0, disagrees", "1, agrees", "1, disagrees"),
        class_names=("0", "1"),
    )


def _subpopulations(size: int, minority: float, signal: float, generator: torch.Generator) -> Split:
    y = torch.randint(0, 2, (size,), generator=generator)
    order = torch.randperm(size, generator=generator)
    agrees = torch.ones(size, dtype=torch.bool)
    agrees[order[: round(minority * size)]] = False
    sign = 2.0 * y - 1
    core = sign.unsqueeze(1) * signal / math.sqrt(10) + torch.randn(size, 10, generator=generator)
    spurious = torch.where(agrees, sign, -sign) + 0.1 * torch.randn(size, generator=generator)
    groups = torch.stack([(y == label) & (agrees == agreed) for label in (0, 1) for agreed in (True, False)], 1)
    return Split(torch.cat([core, spurious.unsqueeze(1)], 1), y, groups)
