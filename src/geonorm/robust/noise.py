"""Additive noise on inputs."""

from __future__ import annotations

import torch
from torch import Tensor


def gaussian_noise(
    x: Tensor,
    std: float = 0.25,
    *,
    between: tuple[float, float] | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The input with independent normal noise on every value.

        x + std · N(0, 1)

    Args:
        x: inputs of any shape.
        std: standard deviation of the noise.
        between: clip the result to this range; ``None`` (the default) does not clip.
        generator: where the noise comes from; torch's own by default.

    Examples:
        >>> import torch
        >>> from geonorm.robust import gaussian_noise
        >>> noisy = gaussian_noise(torch.zeros(100_000), 0.25, generator=torch.Generator().manual_seed(0))
        >>> print(f"{noisy.std().item():.2f}")
        0.25
    """
    if not std >= 0:
        raise ValueError(f"expected std >= 0 (got {std})")
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    noisy = x + std * noise
    return noisy if between is None else noisy.clamp(*between)
