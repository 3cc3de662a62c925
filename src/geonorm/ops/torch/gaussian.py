"""The constant that makes the robust spread of normal data equal to its standard deviation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache


def robust_factor(phi: float) -> float:
    """k_φ, which scales the center of |Z| to the standard deviation of Z."""
    for usual, factor in usual_factors().items():  # comparing one by one turns a symbolic φ of a graph into a number
        if phi == usual:
            return factor
    return compute_robust_factor(phi)


def usual_factors() -> dict[float, float]:
    """The factors of common φ. A function instead of a constant: see ``search.smallest_distance``."""
    return {
        1.0: 1.4826022185056023,
        1.1: 1.453172416449844,
        1.2: 1.4256007396937957,
        1.25: 1.4124495192195767,
        1.5: 1.3522173098269006,
        1.75: 1.2996946488024848,
        2.0: 1.2533141373155003,
        2.5: 1.1746715850363132,
        3.0: 1.110033508216445,
    }


@cache
def compute_robust_factor(phi: float) -> float:
    """k = 1 / c_φ(|Z|) for a standard normal Z: 1.4826 at φ=1 (the MAD's factor), √(π/2) at φ=2.

    The center c of the half-normal balances ∫₀^∞ u^q n(c+u) du against ∫₀^c u^q n(c−u) du, q = φ − 1; c is found by
    bisection. The integrands have an endpoint singularity at u = 0 for q < 1, which tanh-sinh quadrature handles.
    """
    q = phi - 1

    def side(c: float, sign: float, end: float) -> float:
        return _tanh_sinh(lambda u: u**q * math.exp(-0.5 * (c + sign * u) ** 2), end)

    low, high = 0.0, 1.0 + 2.0 * math.sqrt(phi)
    far = math.sqrt(q) + 12.0  # the mode of u^q n(u), and twelve deviations more
    for _ in range(60):
        c = 0.5 * (low + high)
        low, high = (c, high) if side(c, 1.0, far) > side(c, -1.0, c) else (low, c)
    return 2.0 / (low + high)


def _tanh_sinh(f: Callable[[float], float], end: float) -> float:
    """∫₀^end f(u) du for f with an integrable singularity at 0."""
    step, total = 0.0625, 0.0
    for k in range(-64, 65):
        t = k * step
        arm = 0.5 * math.pi * math.sinh(t)
        u = end / (1.0 + math.exp(-2.0 * arm)) if arm > -350 else 0.0
        slope = end * 0.25 * math.pi * math.cosh(t) / math.cosh(arm) ** 2 if abs(arm) < 350 else 0.0
        if slope > 0.0 and u > 0.0:
            total += f(u) * slope
    return total * step


# The attribute that torch.compiler.assume_constant_result sets. Calling it would import Dynamo, which takes as long as
# importing torch itself.
compute_robust_factor._dynamo_marked_constant = True  # type: ignore[attr-defined]
