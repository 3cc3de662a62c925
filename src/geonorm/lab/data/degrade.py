"""Noise, blur, brightness and contrast at severities 1 to 5: our own, not the official CIFAR-10-C."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from .task import Split

# By severity: standard deviation of the noise; of the blur in pixels of a 32-pixel image; added brightness; fraction of
# the contrast that remains.
DEGRADATIONS = {
    "noise": (0.04, 0.06, 0.08, 0.10, 0.14),
    "blur": (0.4, 0.6, 0.8, 1.1, 1.5),
    "brightness": (0.05, 0.10, 0.15, 0.20, 0.30),
    "contrast": (0.75, 0.60, 0.45, 0.30, 0.15),
}


def degrade(split: Split, kind: str, severity: int, seed: int = 0) -> Split:
    """Degrade all images; values stay in [0, 1]. Not comparable with the official CIFAR-10-C.

    Args:
        split: images (float in [0, 1], NCHW) in memory.
        kind: ``"noise"``, ``"blur"``, ``"brightness"`` or ``"contrast"``.
        severity: 1 to 5.
        seed: of the noise.

    Examples:
        >>> import torch
        >>> from geonorm.lab.data import Split, degrade
        >>> images = Split(torch.full((2, 3, 8, 8), 0.5), torch.tensor([0, 1]))
        >>> degrade(images, "brightness", 2).x[0, 0, 0, 0]
        tensor(0.6000)
    """
    if kind not in DEGRADATIONS:
        raise ValueError(f"unknown degradation {kind!r}; known: {', '.join(DEGRADATIONS)}")
    if severity not in range(1, 6):
        raise ValueError(f"expected severity to be 1, 2, 3, 4 or 5 (got {severity})")
    x = split.x
    if not isinstance(x, Tensor) or x.dim() != 4:
        raise ValueError("expected images in memory, of shape (samples, channels, height, width)")
    if not x.is_floating_point() or (len(x) and not 0 <= float(x.min()) <= float(x.max()) <= 1):
        raise ValueError(
            f"expected images of floating-point values from 0 to 1 (got {x.dtype} from {x.min()} to {x.max()}); scale "
            "them, and standardize inside the model"
        )
    amount = DEGRADATIONS[kind][severity - 1]
    if kind == "noise":
        worse = x + amount * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    elif kind == "brightness":
        worse = x + amount
    elif kind == "contrast":
        middle = x.mean((1, 2, 3), keepdim=True)
        worse = middle + amount * (x - middle)
    else:
        worse = _blur(x, amount * x.shape[-1] / 32)
    return replace(split, x=worse.clamp(0, 1))


def _blur(x: Tensor, sigma: float) -> Tensor:
    """A Gaussian blur along one axis, then the other; the border pixels are repeated outside."""
    radius = math.ceil(3 * sigma)
    kernel = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2)
    kernel = (kernel / kernel.sum()).to(x.dtype).view(1, 1, 1, -1)
    flat = x.flatten(0, 1).unsqueeze(1)
    for weight, padding in ((kernel, (radius, radius, 0, 0)), (kernel.mT, (0, 0, radius, radius))):
        flat = torch.nn.functional.conv2d(torch.nn.functional.pad(flat, padding, mode="replicate"), weight)
    return flat.view_as(x)
