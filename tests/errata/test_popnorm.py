"""The errata of the POP-Norm paper (docs/errata.md): identities by brute force, bounds by examples that break them.

Inputs are d×n as in the paper: one row per channel, one column per sample. Bars and hats as there: x̄ is x minus η times
its mean, x̂ is x̄ divided by ρ times its root mean square. P18 to P21 concern the theorems as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

Array = NDArray[np.float64]

MEANS: Array = np.array([[-1.5], [0.4], [2.0]])


def inputs(seed: int = 0, n: int = 40) -> Array:
    """Three channels of different mean and spread."""
    return MEANS + np.array([[0.5], [1.0], [3.0]]) * np.random.default_rng(seed).normal(size=(3, n))


def remove_mean(x: Array, eta: float | Array) -> Array:
    return x - eta * x.mean(axis=1, keepdims=True)


def divide(x: Array, rho: float | Array) -> Array:
    return x / (rho * np.sqrt(np.mean(x**2, axis=1, keepdims=True)))


def mean_square(x: Array) -> float:
    """E‖x‖² over the samples."""
    return float(np.mean(np.sum(x**2, axis=0)))


def top(a: Array) -> float:
    return float(np.linalg.norm(a, 2))


def condition(a: Array) -> float:
    values = np.linalg.eigvalsh(a)
    return float(values[-1] / values[0])


def pop(x: Tensor, kappa: float, beta: float = 0.0) -> Tensor:
    """POP-Norm of samples×features with γ=1 and ε=0."""
    z = x - x.mean(0) + beta
    return z / (kappa * z.square().mean(0).sqrt())


def test_P2_shift_condition_takes_absolute_values() -> None:
    """|β| ≤ |mean| keeps the mean square from growing, for a negative mean too; |β| < mean no β can meet then."""
    x = inputs()[0]
    mean = x.mean()
    assert mean < -1  # so no β satisfies the printed |β| < mean

    def shifted(beta: float) -> float:
        return float(np.mean((x - mean + beta) ** 2))

    before = float(np.mean(x**2))
    for beta in np.linspace(-abs(mean), abs(mean), 11):
        assert 0 <= 1 - beta / mean <= 2 + 1e-12  # η of equation (9)
        assert shifted(beta) <= before + 1e-12
    assert shifted(0.0) < 0.5 * before
    assert shifted(1.5 * mean) > 1.5 * before


def test_P3_remark_1_is_not_the_batchnorm_parametrisation() -> None:
    """γ(x−μ+β)/σ is BatchNorm with the shift γβ/σ, not with the shift β."""
    x = torch.from_numpy(inputs().T.copy())
    gamma = torch.tensor([1.5, 2.5, -2.0], dtype=torch.float64)
    beta = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    sigma = x.std(0, correction=0)
    remark = gamma * (x - x.mean(0) + beta) / sigma

    def batch_norm(shift: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, None, None, gamma, shift, training=True, eps=1e-30)

    torch.testing.assert_close(remark, batch_norm(gamma * beta / sigma))
    assert (remark - batch_norm(beta)).abs().min() > 0.5


def test_P4_variance_subtracts_the_norm_of_the_mean() -> None:
    """E‖g‖² = V + ‖E g‖²; the footnote has the square of the mean norm, which is larger."""
    g = inputs()
    total = mean_square(g)
    variance = mean_square(remove_mean(g, 1.0))
    assert variance + np.sum(g.mean(axis=1) ** 2) == pytest.approx(total, rel=1e-12)
    assert variance + np.mean(np.linalg.norm(g, axis=0)) ** 2 > 1.3 * total


def test_P5_descent_inequality_has_the_gradient_in_it() -> None:
    """One SGD step on ½Lw²: (α/2)‖∇F‖² ≤ F − E F⁺ + (α/2)V, and E‖∇f‖² = V + ‖∇F‖². With ‖F‖² the identity fails."""
    curvature, noise, w = 2.0, 0.5, 3.0
    objective, slope = 0.5 * curvature * w**2, curvature * w
    samples = slope + noise * np.array([-1.0, 1.0])  # gradients of two equally likely samples
    second_moment, variance = np.mean(samples**2), noise**2
    assert second_moment == pytest.approx(variance + slope**2, rel=1e-12)
    assert abs(variance + objective**2 - second_moment) > 1.0
    for rate in np.linspace(0.01, 1 / curvature, 20):
        after = np.mean(0.5 * curvature * (w - rate * samples) ** 2)
        assert rate / 2 * slope**2 <= objective - after + rate / 2 * variance + 1e-12
        # The printed L·α²/2 does not come out of the line before it, but is a sharper bound and true as well.
        assert rate / 2 * slope**2 <= objective - after + curvature * rate**2 / 2 * variance + 1e-12


def test_P6_bounded_mean_gradient_does_not_bound_the_samples() -> None:
    """f₁ = w², f₂ = −w²: the gradient of their mean is 0 everywhere, that of each sample has no bound."""
    w = np.array([1.0, 1e3, 1e6])
    samples = np.stack([2 * w, -2 * w])
    assert np.all(samples.mean(axis=0) == 0)
    assert np.all(np.abs(samples[0]) >= w)


def test_P6_vanishing_average_does_not_make_the_sequence_vanish() -> None:
    """1 at powers of two, else 0, with weights 1/k: the average goes to 0, of the sequence only the liminf does."""
    k = np.arange(1, 2**20 + 1)
    sequence = ((k & (k - 1)) == 0).astype(float)
    average = np.cumsum(sequence / k) / np.cumsum(1 / k)
    at_powers = average[2 ** np.arange(5, 21) - 1]
    assert all(later < earlier for earlier, later in pairwise(at_powers))
    assert np.sum(sequence / k) < 2  # while Σ1/k grows without bound: the average is below 2/ln K
    assert average[-1] < 2 / np.log(k[-1])
    assert sequence[-1] == 1  # k = 2^20: still 1 at the end
    assert sequence[k.size // 2 : -1].max() == 0


def test_P7_gradient_bound_enters_squared() -> None:
    """f = M₁·wᵗx on centred inputs has variance M₁²E‖x‖², above the printed bound M₁E‖x‖²."""
    slope_bound = 3.0
    x = remove_mean(inputs(), 1.0)
    gradients = slope_bound * x
    variance = mean_square(gradients) - np.sum(gradients.mean(axis=1) ** 2)
    assert variance == pytest.approx(slope_bound**2 * mean_square(x), rel=1e-12)
    assert variance > 2 * slope_bound * mean_square(x)


@pytest.mark.parametrize("eta", [0.3, 1.0, 1.7])
def test_P8_mean_removal_takes_off_the_squared_mean(eta: float) -> None:
    """E‖x̄‖² = E‖x‖² − η(2−η)‖E x‖²; with the means of absolute values, as printed, too much is taken off."""
    x = inputs()
    after, before, mean = mean_square(remove_mean(x, eta)), mean_square(x), x.mean(axis=1)
    assert after == pytest.approx(before - eta * (2 - eta) * np.sum(mean**2), rel=1e-12)
    printed = before - eta * (2 - eta) * np.sum(np.mean(np.abs(x), axis=1) ** 2)
    assert printed < 0.9 * after
    assert 1 - np.sum(mean**2) / before - 1e-12 <= after / before <= 1


def test_P9_lipschitz_constant_is_the_largest_curvature() -> None:
    """ln cosh w has gradient tanh w: the Hessian at one point is not a Lipschitz constant of it, the largest one is."""
    w = np.linspace(-4, 4, 801)
    slopes = np.abs(np.diff(np.tanh(w)) / np.diff(w))
    curvature = 1 / np.cosh(w) ** 2
    assert slopes.max() <= curvature.max()
    assert slopes.max() > 5 * curvature[600]  # at w = 2


def test_P10_norms_of_products_do_not_commute() -> None:
    """‖AB‖ ≠ ‖BA‖, also for the product in question; ‖XAXᵗ‖ ≤ ‖A‖‖X‖² gives the same bound without it."""
    a, b = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    assert top(b @ a) == 1
    assert top(a @ b) == 0

    x = inputs()
    curvature = np.diag(np.random.default_rng(1).uniform(0.1, 5.0, x.shape[1]))
    hess = x @ curvature @ x.T
    assert top(curvature @ x.T @ x) > 1.05 * top(hess)
    assert top(hess) <= top(curvature) * top(x) ** 2


def test_P11_lower_bound_is_relative_to_the_size_of_the_input() -> None:
    """The ratio of diagonals is 1 − (Σx)²/(nΣx²) at η=1; without the divisor, as printed, small inputs break it."""
    x = 0.01 * inputs()
    for row in x:
        squares, total = np.sum(row**2), np.sum(row)
        after = np.sum((row - row.mean()) ** 2)
        assert after / squares == pytest.approx(1 - total**2 / (row.size * squares), rel=1e-10)
    row = x[0]
    assert np.sum((row - row.mean()) ** 2) / np.sum(row**2) < 1 - np.sum(row) ** 2 - 0.3


def test_P12_division_leaves_one_over_rho_squared_per_channel() -> None:
    """E‖x̂‖² = Σ 1/ρ_j²; no single channel's factor in front of E‖x̄‖² gives it."""
    x = remove_mean(inputs(), 1.0)
    rho = np.array([[4.0], [2.0], [1.0]])
    rms = np.sqrt(np.mean(x**2, axis=1))
    truth = mean_square(divide(x, rho))
    assert truth == pytest.approx(np.sum(rho**-2.0), rel=1e-12)
    for r, s in zip(rho[:, 0], rms, strict=True):
        assert abs(mean_square(x) / (r * s) ** 2 / truth - 1) > 0.1
    assert np.all(rho[:, 0] * rms >= 1)
    assert truth < mean_square(x)


def test_P13_diagonal_after_division_is_n_over_rho_squared() -> None:
    """Σ_i x̂_ij² = n/ρ_j², not ρ_j²; the ratio of the largest to the smallest is the same for both."""
    x = inputs()
    rho = np.array([[4.0], [2.0], [0.5]])
    diagonal = np.sum(divide(x, rho) ** 2, axis=1)
    np.testing.assert_allclose(diagonal, x.shape[1] / rho[:, 0] ** 2, rtol=1e-12)
    assert np.all(np.abs(diagonal / rho[:, 0] ** 2 - 1) > 0.3)
    assert diagonal.max() / diagonal.min() == pytest.approx(rho.max() ** 2 / rho.min() ** 2)


def test_P14_convex_in_the_weights_is_not_convex_in_the_outputs() -> None:
    """g = −cos on two samples: F has positive curvature in w where ∇²G has a negative eigenvalue."""
    x, bias, w = np.array([[2.0, 0.5]]), np.array([0.0, 2.5]), np.zeros(1)
    curvature = np.diag(np.cos(w @ x + bias)) / 2  # ∇²G
    assert (x @ curvature @ x.T).item() > 0.5
    assert np.linalg.eigvalsh(curvature)[0] < -0.3


def test_P15_bound_on_the_condition_number_without_a_singular_inverse() -> None:
    """The n×n matrix X̄ᵗX̄ has rank d < n; Rayleigh quotients on the axes give the bound without inverting it."""
    x = remove_mean(inputs(), 1.0)
    d, n = x.shape
    assert np.linalg.matrix_rank(x.T @ x) == d < n
    values = np.random.default_rng(1).uniform(0.5, 2.0, n)
    diagonal = np.sum(x**2, axis=1)
    bound = values.min() / values.max() * diagonal.max() / diagonal.min()
    assert condition(x @ np.diag(values) @ x.T) >= bound


def test_P15_trace_does_not_dominate_the_product_of_eigenvalues() -> None:
    """‖AB‖ ≥ λ_min(A)λ_max(B) is true, the step through Tr(AB)/d is not."""
    a, b = np.eye(3), np.diag([3.0, 0.1, 0.1])
    product = np.linalg.eigvalsh(a)[0] * np.linalg.eigvalsh(b)[-1]
    assert top(a @ b) >= product
    assert np.trace(a @ b) / 3 < 0.5 * product


def test_P18_uniform_eta_lowers_the_whole_matrix() -> None:
    """X̄X̄ᵗ = n(Σ + (1−η)²μμᵗ) ⪯ XXᵗ for one η in [0, 2]: no eigenvalue grows."""
    x = inputs()
    n, mean = x.shape[1], x.mean(axis=1, keepdims=True)
    covariance = remove_mean(x, 1.0) @ remove_mean(x, 1.0).T / n
    for eta in (0.0, 0.5, 1.0, 1.5, 2.0):
        after = remove_mean(x, eta) @ remove_mean(x, eta).T
        np.testing.assert_allclose(after, n * (covariance + (1 - eta) ** 2 * mean @ mean.T), atol=1e-9)
        assert np.linalg.eigvalsh(x @ x.T - after)[0] > -1e-9


def test_P18_eta_per_channel_can_raise_the_largest_eigenvalue() -> None:
    """Σ=[[1,−.9],[−.9,1]], μ=(1,1), η=(0,2): the bound stays where it was while λ_max goes from 2.1 to 3.9."""
    covariance, mean = np.array([[1.0, -0.9], [-0.9, 1.0]]), np.array([[1.0], [1.0]])
    root = np.linalg.cholesky(covariance) * np.sqrt(2)
    x = mean + np.concatenate([root, -root], axis=1)  # four samples with exactly these moments
    after = remove_mean(x, np.array([[0.0], [2.0]]))
    second_before, second_after = x @ x.T / 4, after @ after.T / 4
    assert top(second_before) == pytest.approx(2.1)
    assert top(second_after) == pytest.approx(3.9)
    np.testing.assert_allclose(np.diag(second_after), np.diag(second_before))  # the compared bounds see no difference


def test_P19_division_shrinks_only_by_assumption() -> None:
    """Theorem 3 (1, 2) asks for ρ·rms ≥ 1. A channel with ρ·rms < 1 gets a larger variance and a larger curvature."""
    small = 0.1 * remove_mean(inputs(), 1.0)
    rms = np.sqrt(np.mean(small**2, axis=1))
    assert np.all(rms < 1)
    after = divide(small, 1.0)
    assert mean_square(after) > 10 * mean_square(small)
    assert top(after @ after.T) > 5 * top(small @ small.T)


def test_P20_unit_diagonal_can_raise_the_condition_number() -> None:
    """The lower bound of Theorem 3 (3) falls from 6.5 to 1 while the condition number rises from 110 to 142."""
    root = np.array([[2.0, 0.0, 0.0], [4.0, 3.0, 0.0], [4.0, 3.0, 1.0]])
    x = np.concatenate([root, -root], axis=1)  # centred samples
    before, after = x @ x.T, divide(x, 1.0) @ divide(x, 1.0).T
    diagonal = np.diag(before)
    assert diagonal.max() / diagonal.min() == pytest.approx(6.5)
    np.testing.assert_allclose(np.diag(after), x.shape[1])
    assert condition(before) == pytest.approx(110.26, abs=0.01)
    assert condition(after) == pytest.approx(142.31, abs=0.01)

    grid = np.exp(np.linspace(-3, 3, 61))
    best = min(condition(before * np.outer(d := np.array([1.0, a, b]), d)) for a in grid for b in grid)
    assert condition(after) <= 3 * best  # van der Sluis: never worse than d times the best diagonal scaling


def two_layers(activation: Callable[[Tensor], Tensor], kappa: float) -> Callable[[Tensor], Tensor]:
    """Loss in the first weights of POP → linear → activation → POP → linear → mean square; κ is the first one's."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(32, 3, generator=draw, dtype=torch.float64)
    second = torch.randn(3, 2, generator=draw, dtype=torch.float64)
    target = torch.randn(32, 2, generator=draw, dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        hidden = activation(pop(x, kappa) @ w.reshape(3, 3))
        return (pop(hidden, 1.0) @ second - target).square().mean()

    return loss


def first_weights() -> Tensor:
    return torch.randn(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def last_layer(kappa: float) -> Callable[[Tensor], Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(32, 9, generator=draw, dtype=torch.float64)
    target = torch.randn(32, generator=draw, dtype=torch.float64)
    return lambda w: (pop(x, kappa) @ w - target).square().mean()


def curvature_of(loss: Callable[[Tensor], Tensor]) -> float:
    return float(torch.linalg.eigvalsh(hessian(loss, first_weights()))[-1])


def test_P21_kappa_divides_the_curvature_of_a_last_layer_by_its_square() -> None:
    """POP → linear → mean square: the slope of log λ_max against log κ is −2."""
    one, four, sixteen = (curvature_of(last_layer(kappa)) for kappa in (1.0, 4.0, 16.0))
    assert np.log(four / one) / np.log(4) == pytest.approx(-2, abs=1e-9)
    assert np.log(sixteen / one) / np.log(16) == pytest.approx(-2, abs=1e-9)


def test_P21_kappa_does_nothing_between_relu_layers() -> None:
    """With a ReLU and another POP-Norm (β=0, ε=0) behind the layer, neither loss nor curvature depends on κ."""
    relu = [two_layers(torch.relu, kappa) for kappa in (1.0, 4.0, 16.0)]
    losses = [float(loss(first_weights())) for loss in relu]
    curvatures = [curvature_of(loss) for loss in relu]
    assert curvatures[0] > 0.01
    np.testing.assert_allclose(losses, losses[0], rtol=1e-12)
    np.testing.assert_allclose(curvatures, curvatures[0], rtol=1e-9)

    tanh = [curvature_of(two_layers(torch.tanh, kappa)) for kappa in (1.0, 16.0)]
    assert abs(np.log(tanh[1] / tanh[0]) / np.log(16)) < 0.3  # and not −2 for tanh either


def test_P21_kappa_is_a_learning_rate_and_an_initial_scale() -> None:
    """F_κ(w) = F(w/κ): gradient descent at rate α is descent on F from w₀/κ at rate α/κ², step by step."""
    kappa, rate = 4.0, 0.3
    scaled, plain = last_layer(kappa), last_layer(1.0)
    w = first_weights()
    v = w / kappa
    for _ in range(10):
        w = w - rate * jacobian(scaled, w)
        v = v - rate / kappa**2 * jacobian(plain, v)
        torch.testing.assert_close(w, kappa * v)
    assert not torch.allclose(w, first_weights(), atol=1e-2)
