"""Logarithms and powers that are the same on every machine.

Processes must make the same decisions from the same numbers. A math library may differ in the last digit between
machines, so these functions use only + − × ÷ and powers of two, for which IEEE 754 prescribes the result. They are
within about 1e-15 of the true values.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..torch.search import Arithmetic

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the low bits of the first are zero
_ODD = [2 / (2 * k + 1) for k in range(12)]  # ln m = 2s + 2s³/3 + 2s⁵/5 + ..., with s = (m − 1)/(m + 1)
_TAYLOR = [1 / math.factorial(k) for k in range(15)]


def log(value: Tensor) -> Tensor:
    """The natural logarithm of float64 numbers; −∞ for 0, NaN below."""
    m, e = torch.frexp(value)
    low = m < math.sqrt(0.5)
    m, exponent = torch.where(low, 2 * m, m), torch.where(low, e - 1, e).double()
    s = (m - 1) / (m + 1)
    found = exponent * _LN2_HIGH + (exponent * _LN2_LOW + s * _series(s * s, _ODD))
    found = torch.where(value == math.inf, math.inf, torch.where(value == 0, -math.inf, found))
    return torch.where(value >= 0, found, math.nan)


def exp(value: Tensor) -> Tensor:
    """e to the power of float64 numbers; 0 below −708, ∞ above 709."""
    inside = value.clamp(-708.0, 709.0)
    whole = torch.round(inside * (1 / math.log(2)))
    rest = (inside - whole * _LN2_HIGH) - whole * _LN2_LOW
    power = ((torch.where(whole.isnan(), 0.0, whole).long() + 1023) << 52).view(torch.float64)
    found = _series(rest, _TAYLOR) * power
    return torch.where(value < -708, 0.0, torch.where(value > 709, math.inf, found))


def power_of_two(largest: Tensor) -> Tensor:
    """The power of two that brings a number to between 1 and 2; 1 for 0, ∞ and NaN."""
    usable = largest.isfinite() & (largest > 0)
    _, e = torch.frexp(torch.where(usable, largest.double(), 1.0))
    return torch.where(usable, ((1024 - e.long()).clamp(1, 2046) << 52).view(torch.float64), 1.0)


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    found = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        found = found * x + c
    return found


REPRODUCIBLE = Arithmetic(log, exp)
