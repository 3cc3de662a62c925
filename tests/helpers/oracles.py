"""Independent truths about the center: slow, plain, in extended precision."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Wide = NDArray[np.longdouble]


def sign_of_balance(x: Wide, weight: Wide, y: Wide, phi: float) -> Wide:
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
        above = sign_of_balance(x, weight, middle, phi) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low + (high - low) / 2


def interval_holds_center(x: Wide, weight: Wide, phi: float, center: Wide, bound: Wide) -> NDArray[np.bool_]:
    """Does the true center of each row lie in [center − bound, center + bound]? F decreases, so two signs tell."""
    x, weight = x.astype(np.longdouble), weight.astype(np.longdouble)
    low, high = center - bound, center + bound
    return ((sign_of_balance(x, weight, low, phi) >= 0) & (sign_of_balance(x, weight, high, phi) <= 0))[:, 0]


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


def joint_center_by_newton(points: Wide, inner: Wide, phi: float) -> Wide:
    """argmin_u Σ (a² + |u_i − u|²)^(φ/2), ``points`` one row per sample, in long double.

    Newton's method with a line search on the smooth a² + ε², while ε goes to 0; at φ = 1 a sample that is itself the
    minimizer is found by the test of Vardi and Zhang.
    """
    points, inner = points.astype(np.longdouble), inner.astype(np.longdouble)
    largest = max(np.abs(points).max(), inner.max())
    if largest == 0:
        return points[0]
    points, inner, power = points / largest, inner / largest, np.longdouble(phi)
    if phi == 1:
        for k in np.flatnonzero(inner == 0):
            others = (d := np.sqrt(inner**2 + ((points - points[k]) ** 2).sum(1))) > 0
            pull = ((points[others] - points[k]) / d[others, None]).sum(0)
            if np.sqrt((pull**2).sum()) <= (~others).sum():
                return points[k] * largest

    u = points.mean(0)
    for blur in np.longdouble(10) ** np.arange(0, -40, -1.0) if phi < 2 else [np.longdouble(0)]:
        if 0 < blur < 1e-19 and np.median(inner) > 1e-10:
            break
        for _ in range(60):
            r = points - u
            d = np.sqrt(inner**2 + blur**2 + (r**2).sum(1))
            d = np.where(d > 0, d, 1)
            weight = d ** (power - 2)
            pull = (weight[:, None] * r).sum(0)
            if not np.any(pull):
                break
            second = np.eye(len(u)) * weight.sum() + (power - 2) * (r * (d ** (power - 4))[:, None]).T @ r
            step = _eliminate(second, pull)
            step = step / max(1, np.abs(step).max())  # the hull is not wider than that
            for _ in range(40):
                # Sample by sample, so that one far out does not hide what the others gain.
                change = (step * (step - 2 * r)).sum(1) / d**2
                gain = (d**power * np.expm1(power / 2 * np.log1p(np.maximum(change, -1 + 1e-18)))).sum()
                if gain < 0:
                    break
                step = step / 2
            else:
                break
            u = u + step
            if (step**2).sum() < 1e-42 * (d**2).min():
                break
    return u * largest


def _eliminate(matrix: Wide, right: Wide) -> Wide:
    """The solution of a symmetric positive system by Gaussian elimination; numpy has none in long double."""
    rows = np.concatenate([matrix, right[:, None]], 1).astype(np.longdouble)
    n = len(rows)
    for k in range(n):
        pivot = k + int(np.abs(rows[k:, k]).argmax())
        rows[[k, pivot]] = rows[[pivot, k]]
        if rows[k, k] == 0:
            rows[k, k] = np.finfo(np.longdouble).tiny
        rows[k] = rows[k] / rows[k, k]
        others = np.arange(n) != k
        rows[others] -= rows[others, k, None] * rows[k]
    solution: Wide = rows[:, n]
    return np.where(np.isfinite(solution), solution, 0)


def hostile_batch(rng: np.random.Generator) -> NDArray[np.float64]:
    """Few samples in few channels, (N, C) or (N, C, P), that break plain solvers of the joint center."""
    samples = int(rng.choice([1, 2, 3, 4, 5, 7, 12, 30]))
    channels = int(rng.choice([1, 2, 3, 5]))
    positions = int(rng.choice([1, 1, 2, 6]))
    shape = (samples, channels, positions)
    normal = rng.standard_normal(shape)
    line = rng.standard_normal((samples, 1, 1)) * rng.standard_normal((1, channels, 1)) + rng.standard_normal()
    family = [
        lambda: normal,
        lambda: np.round(normal),  # ties
        lambda: np.round(normal[:, :, :1]) * np.ones(positions),  # samples without spread
        lambda: np.where(rng.random((samples, 1, 1)) < 0.5, normal * 0.01 - 3, normal * 0.01 + 3),
        lambda: np.where(rng.random((samples, 1, 1)) < 0.5, -1.0, 1.0) * np.ones(shape),
        lambda: line * np.ones(shape),
        lambda: np.round(line * 2) * np.ones(shape),
        lambda: normal[:1] * np.ones(shape),  # all the same
        lambda: np.where(np.arange(samples)[:, None, None] < 1, normal * 10.0 ** rng.integers(0, 31), normal),
        lambda: normal * 10.0 ** rng.integers(-10, 10, (samples, 1, 1)),
        lambda: normal * 10.0 ** rng.integers(-30, 30, (1, channels, 1)),
        lambda: np.where(np.arange(channels)[None, :, None] < 1, 0.3, normal),  # a constant channel
        lambda: normal + 1e6 * rng.standard_normal((1, channels, 1)),
        lambda: np.maximum(normal, 0),
        lambda: rng.standard_cauchy(shape),
    ]
    batch: NDArray[np.float64] = family[rng.integers(len(family))]() * 10.0 ** rng.choice([0, 0, 0, 30, -30])
    return batch if positions > 1 or rng.random() < 0.3 else batch[:, :, 0]


def guard_by_formulas(x: Tensor, k: float) -> tuple[Tensor, Tensor, Tensor]:
    """Distances, factors and center by the formulas, one sample at a time, in float64."""
    x = x.double().flatten(2) if x.dim() > 2 else x.double()[..., None]
    samples, channels, _ = x.shape
    m, v = x.mean(2), x.var(2, correction=0)
    some = range(samples) if samples <= 256 else [i * samples // 256 for i in range(256)]
    y, s2 = torch.zeros(channels).double(), torch.zeros(channels).double()
    for c in range(channels):
        column = sorted(float(m[i, c]) for i in some)
        y[c] = 0.5 * (column[(len(column) - 1) // 2] + column[len(column) // 2])
        squares = sorted(float(v[i, c] + (m[i, c] - y[c]) ** 2) for i in some)
        least = (8 * torch.finfo(torch.float64).eps * float(y[c])) ** 2
        if not squares[(len(squares) - 1) // 2] > least:
            squares = [square for square in squares if square > least] or [0.0]
        s2[c] = squares[(len(squares) - 1) // 2]
    s2 = s2.clamp_min(1e-6 * float(s2.max()))

    def distance(i: int) -> float:
        return math.sqrt(float(((v[i] + (m[i] - y) ** 2) / s2).mean()))

    for _ in range(2):
        weight = [1 / max(distance(i), 1e-6) for i in some]
        y = sum(w * m[i] for w, i in zip(weight, some, strict=True)) / sum(weight)
    d = torch.tensor([distance(i) for i in range(samples)], dtype=torch.float64)
    radius = k * float(d.sort().values[(samples - 1) // 2])
    return d, (radius / d).clamp_max(1.0), y
