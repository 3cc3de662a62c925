"""Noise has the size that was asked for, and follows its generator."""

import math

import pytest
import torch

from geonorm.robust import gaussian_noise


def test_noise() -> None:
    x = torch.full((100_000,), 0.5, dtype=torch.float64)
    noisy = gaussian_noise(x, 0.25, generator=torch.Generator().manual_seed(0))
    assert float((noisy - x).mean()) == pytest.approx(0, abs=4 * 0.25 / 100_000**0.5)
    assert float((noisy - x).std()) == pytest.approx(0.25, rel=0.01)
    assert noisy.min() < 0  # not clipped unless asked
    assert gaussian_noise(x, 0.25, between=(0, 1)).min() == 0
    assert torch.equal(gaussian_noise(x, 0.0), x)
    with pytest.raises(ValueError, match="std >= 0"):
        gaussian_noise(x, math.nan)
