"""What the reproducible arithmetic makes of given sums, as numbers whose bits can be compared."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geonorm.ops.joint import arithmetic
from geonorm.ops.joint.arithmetic import REPRODUCIBLE
from geonorm.ops.torch.search import Searches, Sums, begin, evaluate


def numbers(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.exp(torch.randn(4000, generator=generator, dtype=torch.float64) * 100)
    near = 1 + 1e-3 * torch.randn(1000, generator=generator, dtype=torch.float64)
    return torch.cat([wide, near, torch.tensor([0.0, 1.0, math.inf, 5e-324, 1e308], dtype=torch.float64)])


def searches(up: Tensor, down: Tensor, phi: Tensor, number: int) -> Searches:
    """At y = 0, with the extremes this far above and below it."""
    one = torch.ones_like(up)
    begun = begin(phi, -down, up, one * number, one, 0 * one, one > 0)
    return begun._replace(up=up, down=down)


def decisions() -> Tensor:
    """What is made of some sums, as bits."""
    found = [arithmetic.log(numbers()), arithmetic.exp(numbers().log() / 2), REPRODUCIBLE.power(numbers(), 1.7)]
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        s = Sums(*(100 * torch.rand(64, 1, generator=generator, dtype=torch.float64) for _ in Sums._fields))
        up, down, q = (torch.rand(64, 1, generator=generator, dtype=torch.float64) + 0.05 for _ in range(3))
        found += evaluate(searches(up, down, 1 + 3 * q, 100), s, 1e-7, REPRODUCIBLE)
    return torch.cat([part.double().reshape(-1) for part in found]).nan_to_num(7.0)
