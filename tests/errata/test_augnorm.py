"""The errata of the AugNorm papers (docs/errata.md), each against a truth that shares no formula with it.

The center comes from bisection and every derivative from central differences, in float64. "Printed" is what the papers
have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]

X: Array = np.array([-1.3, -0.4, 0.1, 0.35, 0.9, 2.5, 6.0])
UPSTREAM: Array = np.array([0.7, -1.1, 0.4, 1.9, -0.6, 0.8, -0.3])  # dℓ/dy
EPS = 1e-5
GAMMA, BETA, ALPHA = 1.3, -0.2, 0.8
FLOAT16 = 2.0**-11  # unit roundoff


def psi(x: Array, y: float, phi: float) -> Array:
    """sgn(x − y)|x − y|^(φ−1); the center is where its sum vanishes."""
    return np.sign(x - y) * np.abs(x - y) ** (phi - 1)


def weight(x: Array, y: float, phi: float) -> Array:
    return np.abs(x - y) ** (phi - 2)


def objective(x: Array, y: float, phi: float) -> float:
    return float(np.sum(np.abs(x - y) ** phi))


def center(x: Array, phi: float) -> float:
    """The minimizer of Σ|x − y|^φ by bisection on the sign of Σψ, to the last bit."""
    low, high = float(x.min()), float(x.max())
    while low < (mid := 0.5 * (low + high)) < high:
        low, high = (mid, high) if psi(x, mid, phi).sum() > 0 else (low, mid)
    return 0.5 * (low + high)


def slope(f: Callable[[float], float], at: float, h: float = 1e-5) -> float:
    return (f(at + h) - f(at - h)) / (2 * h)


def gradient(f: Callable[[Array], float], x: Array) -> Array:
    units = np.eye(x.size)
    return np.array([slope(lambda t, e=e: f(x + t * e), 0.0) for e in units])


def relative_error(value: Array | float, truth: Array | float) -> float:
    return float(np.linalg.norm(np.subtract(value, truth)) / np.linalg.norm(truth))


def loss_about(shift: float, x: Array, variance: float | None = None) -> float:
    """Σ dℓ/dy · y of the layer that subtracts ``shift``, with its own variance about ``shift`` unless one is given."""
    s = x - shift
    rho = ((np.mean(s**2) if variance is None else variance) + EPS) ** -0.5
    return float(UPSTREAM @ (GAMMA * rho * s + BETA))


def loss(x: Array, phi: float, alpha: float = ALPHA) -> float:
    return loss_about(alpha * center(x, phi), x)


def backward(phi: float, variance_sign: float = -1.0, center_sign: float = 1.0) -> tuple[Array, float]:
    """dℓ/dx and S = Σ dℓ/ds as the papers chain them, with the signs of dℓ/dσ² (E4) and dμ/dx (E3) to choose."""
    mu = center(X, phi)
    s = X - ALPHA * mu
    rho = (np.mean(s**2) + EPS) ** -0.5
    w = weight(X, mu, phi)
    d_hat = GAMMA * UPSTREAM
    d_var = variance_sign * 0.5 * np.sum(d_hat * s) * rho**3
    d_s = d_var * 2 / X.size * s + d_hat * rho
    return d_s - ALPHA * d_s.sum() * center_sign * w / w.sum(), float(d_s.sum())


def newton(x: Array, phi: float, steps: int, sign: float = 1.0) -> float:
    """Plain Newton from the mean; ``sign=-1`` is the iteration as printed."""
    y = float(x.mean())
    for _ in range(steps):
        y += sign * float(psi(x, y, phi).sum() / ((phi - 1) * weight(x, y, phi).sum()))
    return y


def bracketed_newton(x: Array, phi: float, steps: int) -> float:
    """Newton on P^(1/q) − N^(1/q), P and N the sums of |x − y|^q on either side of y, with bisection as a safeguard."""
    q, y, low, high = phi - 1, float(x.mean()), float(x.min()), float(x.max())
    for _ in range(steps):
        right, left = x[x > y] - y, y - x[x < y]
        p, n = np.sum(right**q), np.sum(left**q)
        low, high = (y, high) if p > n else (low, y)
        value = p ** (1 / q) - n ** (1 / q)
        down = p ** (1 / q - 1) * np.sum(right ** (q - 1)) + n ** (1 / q - 1) * np.sum(left ** (q - 1))
        step = y + value / down
        y = float(step) if low <= step <= high else 0.5 * (low + high)
    return y


def relu_data(zeros: float, seed: int, m: int = 1000) -> Array:
    """Half-normal values with a share of exact zeros, as after a ReLU."""
    draw = np.random.default_rng(seed)
    return np.where(np.arange(m) < zeros * m, 0.0, np.abs(draw.normal(size=m)))


@pytest.mark.parametrize("phi", [1.3, 1.5, 2.0, 3.0])
def test_E1_first_derivative_has_the_opposite_sign(phi: float) -> None:
    """d/dy Σ|x − y|^φ is −φΣψ; the printed +φΣψ is its negative."""
    y = 0.6
    truth = slope(lambda t: objective(X, t, phi), y)
    total = phi * psi(X, y, phi).sum()
    assert relative_error(-total, truth) < 1e-8
    assert relative_error(+total, truth) > 1.9


@pytest.mark.parametrize("phi", [1.5, 1.75, 3.0])
def test_E2_printed_newton_step_leaves_the_minimum(phi: float) -> None:
    """From the mean the printed step and every later one move away from the center; the corrected ones reach it."""
    mu = center(X, phi)
    start = abs(X.mean() - mu)
    assert start > 0.1
    assert abs(newton(X, phi, 1, sign=-1) - mu) > 1.2 * start
    assert abs(newton(X, phi, 4, sign=-1) - mu) > 1.5 * start
    assert abs(newton(X, phi, 1) - mu) < 0.6 * start
    assert abs(newton(X, phi, 8) - mu) < 1e-8


@pytest.mark.parametrize("phi", [1.3, 1.5, 2.0, 3.0])
def test_E3_center_moves_with_its_data(phi: float) -> None:
    """dμ/dx_i is +w_i/W: not negative and of sum 1. The printed −w_i/W would move the center against its data."""
    truth = gradient(lambda x: center(x, phi), X)
    w = weight(X, center(X, phi), phi)
    assert relative_error(w / w.sum(), truth) < 1e-6
    assert relative_error(-w / w.sum(), truth) > 1.9
    assert truth.min() > 0
    assert truth.sum() == pytest.approx(1, abs=1e-8)


def test_E4_variance_gradient_has_the_opposite_sign() -> None:
    """dℓ/dσ² is −½Σ dℓ/dx̂ · s ρ³; the theorem prints +½."""
    shift, variance = 0.4, 3.0
    truth = slope(lambda v: loss_about(shift, X, v), variance)
    half = 0.5 * np.sum(GAMMA * UPSTREAM * (X - shift)) * (variance + EPS) ** -1.5
    assert relative_error(-half, truth) < 1e-8
    assert relative_error(+half, truth) > 1.9


@pytest.mark.parametrize("phi", [1.3, 1.5, 3.0])
def test_E3_E4_input_gradient_needs_both_corrections(phi: float) -> None:
    """dℓ/dx of the whole layer is right with both signs corrected and wrong with either one left as printed."""
    truth = gradient(lambda x: loss(x, phi), X)
    assert relative_error(backward(phi)[0], truth) < 1e-6
    assert relative_error(backward(phi, variance_sign=1.0)[0], truth) > 0.12
    assert relative_error(backward(phi, center_sign=-1.0)[0], truth) > 0.45
    assert relative_error(backward(phi, variance_sign=1.0, center_sign=-1.0)[0], truth) > 0.5


@pytest.mark.parametrize("phi", [1.3, 1.5, 3.0])
def test_E5_phi_gradient_is_short_by_one_over_phi(phi: float) -> None:
    """dμ/dφ is Σψ ln|r| / ((φ−1)W); the printed one is exactly 1/φ of it, with the right sign."""
    truth = slope(lambda t: center(X, t), phi)
    mu = center(X, phi)
    r, total = psi(X, mu, phi), weight(X, mu, phi).sum()
    logs = np.log(np.abs(X - mu))
    assert relative_error(np.sum(r * logs) / ((phi - 1) * total), truth) < 1e-6
    assert relative_error(np.sum(r * (1 + phi * logs)) / (phi * (phi - 1) * total), truth) < 1e-6
    printed = np.sum(r * (1 + logs)) / (phi * (phi - 1) * total)
    assert printed / truth == pytest.approx(1 / phi, rel=1e-6)


def test_E7_center_gradient_needs_the_sum_the_sign_and_alpha() -> None:
    """dℓ/dM is −αρΣ dℓ/dx̂ − (2α/m) dℓ/dσ² Σs; no reading of the printed form gives it."""
    m, shift = X.size, 0.4
    truth = slope(lambda c: loss_about(ALPHA * c, X), shift)
    s = X - ALPHA * shift
    rho = (np.mean(s**2) + EPS) ** -0.5
    d_hat = GAMMA * UPSTREAM
    d_var = -0.5 * np.sum(d_hat * s) * rho**3
    assert relative_error(-ALPHA * rho * d_hat.sum() - 2 * ALPHA / m * d_var * s.sum(), truth) < 1e-8

    first = -rho * d_hat.sum()
    printed = [first + d_var * 2 * term / m for term in (*s, s.sum())]  # any one i, or the sum
    assert min(relative_error(value, truth) for value in printed) > 0.1
    assert min(relative_error(ALPHA * value, truth) for value in printed) > 0.03  # α put in: the sign is left


def test_E8_alpha_has_a_gradient() -> None:
    """dℓ/dα = −μ Σ dℓ/ds, which the list of gradients for a learnable α leaves out, is not zero."""
    phi = 1.5
    truth = slope(lambda a: loss(X, phi, a), ALPHA)
    assert relative_error(-center(X, phi) * backward(phi)[1], truth) < 1e-8
    assert abs(truth) > 0.1


def test_E9_convex_but_not_by_a_positive_second_derivative() -> None:
    """f_YY is 0 between data points at φ=1 and infinite at them for 1<φ<2; the objective is convex all the same."""

    def bend(y: float, phi: float, h: float) -> float:
        return (objective(X, y + h, phi) - 2 * objective(X, y, phi) + objective(X, y - h, phi)) / h**2

    assert abs(bend(0.6, 1.0, 0.1)) < 1e-10  # printed: strictly positive for φ ≥ 1
    at_a_point = [bend(float(X[2]), 1.5, h) for h in (1e-2, 1e-4, 1e-6)]
    assert at_a_point[1] > 3 * at_a_point[0]
    assert at_a_point[2] > 3 * at_a_point[1]

    draw = np.random.default_rng(0)
    for phi in (1.0, 1.2, 1.5, 3.0):
        for a, b in draw.uniform(-3, 8, (50, 2)):
            chord = 0.5 * (objective(X, a, phi) + objective(X, b, phi))
            middle = objective(X, 0.5 * (a + b), phi)
            assert middle <= chord + 1e-10
            assert phi == 1.0 or middle < chord


def test_E11_second_derivative_is_right_because_two_slips_cancel() -> None:
    """The printed f_YY is the curvature of the objective, and the negative of the derivative of the printed f_Y."""
    y, phi = 0.6, 1.5
    printed = phi * (phi - 1) * weight(X, y, phi).sum()
    assert relative_error(printed, slope(lambda t: slope(lambda u: objective(X, u, phi), t, 1e-4), y, 1e-4)) < 1e-4
    derivative_of_printed = slope(lambda t: phi * float(psi(X, t, phi).sum()), y)
    assert relative_error(-printed, derivative_of_printed) < 1e-6


@pytest.mark.parametrize(("zeros", "phi"), [(0.9, 1.2), (0.98, 1.2), (0.98, 1.5)])
def test_E12_eight_newton_steps_do_not_reach_float16_on_sparse_data(zeros: float, phi: float) -> None:
    """After 8 steps Newton with the right sign is far from float16 precision; Newton with a bracket is exact."""
    for seed in range(3):
        x = relu_data(zeros, seed)
        mu, sigma = center(x, phi), float(x.std())
        assert abs(newton(x, phi, 4) - mu) > 20 * FLOAT16 * sigma
        assert abs(newton(x, phi, 8) - mu) > 20 * FLOAT16 * sigma
        assert abs(bracketed_newton(x, phi, 8) - mu) < 1e-6 * sigma


@pytest.mark.parametrize("phi", [1.2, 1.5])
def test_E12_fifty_newton_steps_do_not_reach_float16_with_one_outlier(phi: float) -> None:
    """One value of a million among a thousand normal ones: Newton never settles, at the scale of the outlier itself."""
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=1000)
        x[0] = 1e6
        mu, sigma = center(x, phi), float(x.std())
        assert min(abs(newton(x, phi, steps) - mu) for steps in (4, 8, 50)) > 20 * FLOAT16 * sigma
        assert abs(bracketed_newton(x, phi, 8) - mu) < 1e-6 * sigma


def test_E12_newton_cycles_at_the_papers_phi_and_diverges_below() -> None:
    """At a tie Newton multiplies the error by −(2−φ)/(φ−1): −1 at φ=1.5, −4 at φ=1.2. On dense data the claim holds."""
    x = np.concatenate([np.zeros(101), [-1.0, 1.0]])
    for phi, factor in ((1.5, -1.0), (1.2, -4.0)):
        start = 1e-6  # the center is 0, the place of the ties
        step = float(psi(x, start, phi).sum() / ((phi - 1) * weight(x, start, phi).sum()))
        assert (start + step) / start == pytest.approx(factor, rel=1e-3)
        assert factor == pytest.approx(-(2 - phi) / (phi - 1))

    dense = np.random.default_rng(0).normal(size=1000)
    assert abs(newton(dense, 1.5, 4) - center(dense, 1.5)) < FLOAT16


def test_E13_closed_forms_exist_beyond_the_named_ones() -> None:
    """φ=4 is the root of a cubic, m=2 has its midpoint for every φ, φ→∞ is the midrange; φ<1 is not convex."""
    cubic = np.roots([-X.size, 3 * X.sum(), -3 * np.sum(X**2), np.sum(X**3)])
    (root,) = cubic[np.abs(cubic.imag) < 1e-9].real
    assert root == pytest.approx(center(X, 4.0), rel=1e-9)
    for phi in (1.1, 1.5, 2.7):
        assert center(np.array([-1.0, 4.0]), phi) == pytest.approx(1.5, abs=1e-12)
    unit = X / np.ptp(X) * 2  # the extremes are 1 away from their midpoint, so no power over- or underflows to a tie
    assert center(unit, 300.0) == pytest.approx((unit.min() + unit.max()) / 2, abs=1e-6)

    chord = 0.5 * (objective(X, 2.5, 0.5) + objective(X, 6.0, 0.5))
    assert objective(X, 4.25, 0.5) > chord + 0.1


def chi_square_worst_case(losses: Array, radius: float, factor: float) -> float:
    """sup E_Q[ℓ] over factor·∫(dQ/dP − 1)² dP ≤ radius, P uniform: the density is ∝ (ℓ − η)₊, with η by bisection."""

    def density(eta: float) -> Array:
        positive = np.maximum(losses - eta, 0.0)
        return positive / positive.mean()

    low, high = losses.min() - 1e3, losses.max() - 1e-9
    for _ in range(200):
        mid = 0.5 * (low + high)
        inside = factor * np.mean((density(mid) - 1) ** 2) <= radius
        low, high = (mid, high) if inside else (low, mid)
    return float(np.mean(density(low) * losses))


def test_E14_chi_square_divergence_lacks_its_half() -> None:
    """With ½ in the divergence the radius ½(1/α−1)² gives the loss DORO trains with; without it, a smaller one."""
    losses = np.random.default_rng(0).exponential(size=400)
    alpha = 0.25
    radius = 0.5 * (1 / alpha - 1) ** 2
    scale = np.sqrt(1 + (1 / alpha - 1) ** 2)  # DORO's: min_η scale·√mean(ℓ−η)₊² + η
    dual = min(scale * np.sqrt(np.mean(np.maximum(losses - eta, 0) ** 2)) + eta for eta in np.linspace(-5, 5, 4001))
    assert chi_square_worst_case(losses, radius, 0.5) == pytest.approx(dual, rel=1e-5)
    assert chi_square_worst_case(losses, radius, 1.0) < 0.9 * dual


def test_E14_only_the_half_keeps_a_group_of_share_alpha_inside() -> None:
    """The ball of radius ½(1/α−1)² holds every group of share α ≤ ½; without the ½ it loses one of share 0.4."""
    alpha = 0.4
    group = np.where(np.arange(100) < 100 * alpha, 1 / alpha, 0.0)  # dQ/dP of the group
    divergence, radius = np.mean((group - 1) ** 2), 0.5 * (1 / alpha - 1) ** 2
    assert 0.5 * divergence < 0.7 * radius
    assert divergence > 1.3 * radius
