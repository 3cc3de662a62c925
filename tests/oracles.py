"""Independent truths about the center: slow, plain, in extended precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Wide = NDArray[np.longdouble]


def balance(x: Wide, weight: Wide, y: Wide, phi: float) -> Wide:
    """The sign of F(y) = Σ ω sgn(x − y)|x − y|^(φ−1) per row: positive below the center, negative above it."""
    q = np.longdouble(phi) - 1
    r = np.where(weight > 0, x - y, 0)
    largest = np.abs(r).max(1, keepdims=True)
    a = np.abs(r) / np.where(largest > 0, largest, 1)  # the sign of F does not depend on the unit
    p = np.where(a > 0, np.where(a > 0, a, 1) ** q, 0) * weight * np.sign(r)
    return np.sign(p.sum(1, keepdims=True))


def center_by_bisection(x: Wide, phi: float, weight: Wide | None = None, steps: int = 200) -> Wide:
    """Root of F per row, in long double."""
    x = x.astype(np.longdouble)
    weight = np.ones_like(x) if weight is None else weight.astype(np.longdouble)
    low = np.where(weight > 0, x, np.inf).min(1, keepdims=True)
    high = np.where(weight > 0, x, -np.inf).max(1, keepdims=True)
    for _ in range(steps):
        middle = low + (high - low) / 2
        above = balance(x, weight, middle, phi) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low + (high - low) / 2


def holds_the_center(x: Wide, weight: Wide, phi: float, center: Wide, bound: Wide) -> NDArray[np.bool_]:
    """Does the true center of each row lie in [center − bound, center + bound]? F decreases, so two signs tell."""
    x, weight = x.astype(np.longdouble), weight.astype(np.longdouble)
    low, high = center - bound, center + bound
    return ((balance(x, weight, low, phi) >= 0) & (balance(x, weight, high, phi) <= 0))[:, 0]


def hostile_groups(rng: np.random.Generator, rows: int, members: int) -> NDArray[np.float64]:
    """Rows that break plain solvers: ties, half zeros, outliers, offsets, twenty decades at once, extreme scales."""
    normal = rng.standard_normal((rows, members))
    outlier = normal.copy()
    outlier[:, 0] = 1e6 * rng.choice([-1, 1])
    family = [
        lambda: normal,
        lambda: np.exp(2 * normal),
        lambda: rng.standard_cauchy((rows, members)),
        lambda: np.maximum(normal, 0),
        lambda: np.maximum(normal - 1.3, 0),
        lambda: np.where(rng.random((rows, members)) < 0.5, normal * 0.1 - 3, normal * 0.1 + 3),
        lambda: outlier,
        lambda: np.round(normal * 4) / 4,
        lambda: normal + 1e4 * rng.choice([-1, 1]),
        lambda: normal * 10.0 ** rng.integers(-10, 10, (rows, members)),
    ]
    scale = 10.0 ** rng.choice([0, 0, 0, 5, -5, 30, -30])
    data: NDArray[np.float64] = np.clip(family[rng.integers(len(family))]() * scale, -1e37, 1e37)
    return data


def hostile_phi(rng: np.random.Generator) -> float:
    fixed = [1.01, 1.03, 1.05, 1.1, 1.2, 1.25, 1.5, 1.75, 1.9, 2.1, 2.5, 3.0, 4.0, 8.0, 20.0, 50.0, 100.0, 1000.0]
    return float(rng.choice([*fixed, rng.uniform(1.02, 2), rng.uniform(2, 60)]))
