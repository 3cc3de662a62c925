"""Synthetic images of stripes in noise, to test image networks without a data set."""

from __future__ import annotations

import math

import torch

from .task import Split, Task, statistics


def stripes(
    train_size: int = 512, test_size: int = 256, classes: int = 4, side: int = 32, noise: float = 0.2, seed: int = 0
) -> Task:
    """RGB images of stripes whose direction is the class; width, phase and colour are random.

    The groups of each class are coarse and fine stripes.

    Args:
        train_size, test_size: number of samples.
        classes: number of directions, evenly spread.
        side: height and width in pixels.
        noise: standard deviation of the noise.
        seed: of the samples.
    """
    for name, size in (("train_size", train_size), ("test_size", test_size), ("classes", classes)):
        if size < 2:
            raise ValueError(f"expected {name} to be a whole number from 2 (got {size})")
    generator = torch.Generator().manual_seed(seed)
    train, test = (_drawn(size, classes, side, noise, generator) for size in (train_size, test_size))
    mean, std = statistics(train.tensor())
    return Task(
        "stripes",
        train,
        test,
        classes=classes,
        input_shape=(3, side, side),
        mean=mean,
        std=std,
        group_names=tuple(f"{label}, {width}" for label in range(classes) for width in ("coarse", "fine")),
    )


def _drawn(size: int, classes: int, side: int, noise: float, generator: torch.Generator) -> Split:
    y = torch.arange(size) % classes
    angle = (math.pi / classes * y).view(-1, 1, 1, 1)
    place = torch.linspace(-1, 1, side)
    along = place.view(-1, 1) * angle.sin() + place * angle.cos()
    waves, phase = (torch.rand(size, 1, 1, 1, generator=generator) for _ in range(2))
    pattern = torch.sin(2 * math.pi * ((1.5 + waves) * along + phase))
    colour = torch.rand(size, 3, 1, 1, generator=generator)
    x = 0.5 + 0.5 * colour * pattern + noise * torch.randn(size, 3, side, side, generator=generator)
    fine = waves.flatten() >= 0.5
    groups = torch.stack([(y == label) & (fine == is_fine) for label in range(classes) for is_fine in (False, True)], 1)
    return Split(x.clamp(0, 1), y, groups)
