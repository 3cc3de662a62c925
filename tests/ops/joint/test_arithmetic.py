"""Reproducible arithmetic: the logarithm and the exponential."""

from __future__ import annotations

import math

import torch

from geonorm.ops.joint import arithmetic
from helpers.reproducible_decisions import numbers


def test_logarithm_and_exponential_are_right() -> None:
    x = numbers()
    torch.testing.assert_close(arithmetic.log(x), x.log(), rtol=4e-16, atol=2e-16)
    t = torch.cat([torch.linspace(-700, 700, 5001, dtype=torch.float64), torch.tensor([-math.inf, -800.0, 800.0])])
    torch.testing.assert_close(arithmetic.exp(t), t.exp(), rtol=4e-16, atol=0.0)
    assert arithmetic.log(torch.tensor([-1.0, math.nan], dtype=torch.float64)).isnan().all()
    assert arithmetic.exp(torch.tensor([math.nan], dtype=torch.float64)).isnan().all()
    largest = torch.tensor([1.0, 1.5, 3.0, 1e300, 0.0, math.inf], dtype=torch.float64)
    scaled = (arithmetic.power_of_two(largest) * largest)[:4]
    assert ((scaled >= 1) & (scaled < 2)).all()
