"""Robust losses against the optimization problems that define them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize_scalar
from torch import Tensor

from geonorm import robust
from helpers.slow_cases import slow_except

SIZES = (1, 2, 3, 7, 32, 128, 2000)
ALPHAS = (0.001, 0.02, 0.1, 0.3, 0.5, 0.9, 1.0)
EPSES = (0.0, 0.005, 0.1, 0.37, 0.8)
DORO: tuple[Callable[..., robust.RobustLoss], ...] = (robust.cvar_doro, robust.chi_square_doro)


def sample(size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64).exp() * 3


def rest_of(losses: Tensor, dropped: float) -> tuple[Tensor, Tensor]:
    """What is left, in falling order, and the mass of each."""
    worst = losses.sort(descending=True).values
    mass = torch.ones_like(worst)
    for i in range(len(worst)):
        mass[i] = min(1.0, max(0.0, i + 1 - dropped))
    return worst, mass / mass.sum()


def cvar_by_dual(losses: Tensor, alpha: float, dropped: float) -> float:
    """inf over η of E(ℓ − η)₊/α + η: piecewise linear, so the minimum is at one of the losses."""
    worst, mass = rest_of(losses, dropped)
    return min(float((mass * (worst - eta).clamp_min(0)).sum()) / alpha + float(eta) for eta in worst[mass > 0])


def chi_by_dual(losses: Tensor, alpha: float, dropped: float) -> float:
    """inf over η of c·√E(ℓ − η)₊² + η by a bracketing search."""
    worst, mass = rest_of(losses, dropped)
    worst, mass = worst[mass > 0], mass[mass > 0]
    c = math.sqrt(1 + (1 / alpha - 1) ** 2)

    def dual(eta: float) -> float:
        return c * math.sqrt(float((mass * (worst - eta).clamp_min(0).square()).sum())) + eta

    top, span = float(worst[0]), float(worst[0] - worst[-1]) + 1e-3
    if c == 1:
        return float((mass * worst).sum())
    low = top - span * (2 + 2 / (c - 1))
    ends = [low + (top - low) * i / 400 for i in range(401)]
    best = min(range(401), key=lambda i: dual(ends[i]))
    found = minimize_scalar(
        dual, bounds=(ends[max(0, best - 1)], ends[min(400, best + 1)]), method="bounded", options={"xatol": 1e-13}
    )
    return min(float(found.fun), dual(top))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", SIZES)
def test_against_the_duals(size: int, alpha: float) -> None:
    losses = sample(size, seed=size)
    scale = float(losses.max())
    for eps in EPSES:
        for trim in robust.losses.TRIMS:
            dropped = float(int(eps * size)) if trim == "floor" else eps * size
            cvar = robust.cvar_doro(losses, alpha, eps, trim)
            assert float(cvar.loss) == pytest.approx(cvar_by_dual(losses, alpha, dropped), abs=1e-9 * scale)
            chi = robust.chi_square_doro(losses, alpha, eps, trim)
            assert float(chi.loss) == pytest.approx(chi_by_dual(losses, alpha, dropped), abs=1e-9 * scale)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.77, 1.0])
def test_cvar_is_a_linear_program(alpha: float) -> None:
    losses = sample(40, seed=3)
    found = linprog(-losses.numpy(), A_eq=[[1.0] * 40], b_eq=[1.0], bounds=(0, 1 / (alpha * 40)))
    assert float(robust.cvar(losses, alpha).loss) == pytest.approx(-found.fun, abs=1e-9)


@pytest.mark.parametrize("loss", DORO)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_weights_are_the_gradient_and_attain_the_loss(
    loss: Callable[..., robust.RobustLoss], alpha: float, size: int
) -> None:
    losses = sample(size, seed=5).requires_grad_()
    for eps in (0.0, 0.1):
        found = loss(losses, alpha, eps)
        (gradient,) = torch.autograd.grad(found.loss, losses)
        torch.testing.assert_close(gradient, found.weights, rtol=1e-9, atol=1e-12)
        assert float(found.weights.sum()) == pytest.approx(1)
        assert bool((found.weights >= 0).all())
        attained = (found.weights * losses.detach()).sum()
        torch.testing.assert_close(attained, found.loss.detach())


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.6])
def test_chi_square_weights_lie_on_the_ball(alpha: float) -> None:
    losses = sample(200, seed=8)
    weights = robust.chi_square(losses, alpha).weights
    divergence = 0.5 * (200 * weights - 1).square().mean()
    assert float(divergence) == pytest.approx(0.5 * (1 / alpha - 1) ** 2, rel=1e-9)


def test_second_derivative_of_chi_square() -> None:
    losses = sample(12, seed=9).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda v: robust.chi_square(v, 0.4).loss, losses)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=30),
    st.floats(0.01, 1.0),
    st.floats(0.01, 1.0),
    st.floats(0.0, 0.9),
)
def test_laws(values: list[float], alpha: float, other: float, eps: float) -> None:
    losses = torch.tensor(values, dtype=torch.float64)
    small, large = sorted((alpha, other))
    near = 1e-9 * (1 + float(losses.abs().max()))
    mean, top = float(losses.mean()), float(losses.max())
    for loss in (robust.cvar, robust.chi_square):
        tight, loose = float(loss(losses, large).loss), float(loss(losses, small).loss)
        assert mean - near <= tight <= loose + near
        assert loose <= top + near
    half = 0.5 * alpha  # up to ½, CVaR's worst distribution lies inside the χ² ball
    assert float(robust.cvar(losses, half).loss) <= float(robust.chi_square(losses, half).loss) + near
    for loss in DORO:
        assert float(loss(losses, alpha, eps).loss) <= float(loss(losses, alpha, 0.0).loss) + near
        shifted = loss(losses + 3, alpha, eps).loss
        assert float(shifted) == pytest.approx(float(loss(losses, alpha, eps).loss) + 3, abs=10 * near)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_equal_losses_weigh_the_same(alpha: float) -> None:
    losses = torch.full((8,), 2.5)
    found = robust.chi_square(losses, alpha)
    assert float(found.loss) == 2.5
    torch.testing.assert_close(found.weights, torch.full((8,), 0.125))
    assert float(robust.cvar(losses, alpha).loss) == pytest.approx(2.5)


def test_ties_at_the_top_share() -> None:
    """c² ≥ B/k: the largest loss takes everything, and its k ties share it."""
    losses = torch.tensor([1.0, 5.0, 2.0, 5.0], dtype=torch.float64)
    found = robust.chi_square(losses, alpha=0.3)
    assert float(found.loss) == pytest.approx(5.0)
    torch.testing.assert_close(found.weights, torch.tensor([0.0, 0.5, 0.0, 0.5], dtype=torch.float64))


def test_outliers_are_dropped() -> None:
    losses = torch.cat([torch.ones(90), torch.full((10,), 1000.0)])
    assert float(robust.cvar_doro(losses, 0.2, 0.1).loss) == pytest.approx(1.0)
    assert float(robust.chi_square_doro(losses, 0.2, 0.1).loss) == pytest.approx(1.0)
    # int(0.005 · 128) = 0: the published trimming drops nothing.
    batch = sample(128)
    assert float(robust.cvar_doro(batch, 0.2, 0.005, "floor").loss) == float(robust.cvar(batch, 0.2).loss)
    assert float(robust.cvar_doro(batch, 0.2, 0.005).loss) < float(robust.cvar(batch, 0.2).loss)


@pytest.mark.parametrize("loss", slow_except(DORO[:1], DORO))
def test_compiles_and_takes_any_shape(loss: Callable[..., robust.RobustLoss]) -> None:
    losses = sample(24).float().reshape(4, 6).requires_grad_()
    run = torch.compile(lambda v: loss(v, 0.3, 0.1), fullgraph=True, backend="aot_eager")
    value, weights = run(losses)
    expected = loss(losses, 0.3, 0.1)
    torch.testing.assert_close(value, expected.loss)
    assert weights.shape == (4, 6)
    (gradient,) = torch.autograd.grad(value, losses)
    torch.testing.assert_close(gradient, expected.weights)
    for size in (25, 3):  # the last batch of an epoch is smaller
        torch.testing.assert_close(run(sample(size).float()), loss(sample(size).float(), 0.3, 0.1))


@pytest.mark.parametrize("loss", DORO)
def test_infinite_and_nan_losses_show(loss: Callable[..., robust.RobustLoss]) -> None:
    assert math.isnan(float(loss(torch.tensor([1.0, math.nan, 2.0]), 0.5, 0.0).loss))
    assert math.isnan(float(loss(torch.tensor([1.0, math.nan, 2.0, 3.0]), 0.5, 0.25).loss)), "not dropped unseen"
    assert float(loss(torch.tensor([1.0, math.inf, 2.0]), 0.5, 0.0).loss) == math.inf


@pytest.mark.parametrize("loss", DORO)
@pytest.mark.parametrize("eps", [0.0, 0.25])
@pytest.mark.parametrize("place", range(4))
def test_a_nan_loss_shows_in_the_gradient(loss: Callable[..., robust.RobustLoss], eps: float, place: int) -> None:
    """As the mean's does: gradients of 0 would train on as if nothing had happened."""
    weight = torch.ones((), requires_grad=True)
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0]) * weight
    losses = torch.where(torch.arange(4) == place, math.nan, losses)
    found = loss(losses, 0.5, eps)
    found.loss.backward()
    assert weight.grad is not None
    assert weight.grad.isnan()
    assert bool(found.weights.isnan().all())


@pytest.mark.parametrize("loss", DORO)
def test_infinite_outliers_are_dropped(loss: Callable[..., robust.RobustLoss]) -> None:
    losses = torch.tensor([1.0, 2.0, math.inf, 3.0], requires_grad=True)
    found = loss(losses, 0.5, 0.25)
    torch.testing.assert_close(found.loss, loss(torch.tensor([1.0, 2.0, 3.0]), 0.5, 0.0).loss)
    (gradient,) = torch.autograd.grad(found.loss, losses)
    torch.testing.assert_close(gradient, found.weights)


@pytest.mark.parametrize("loss", DORO)
@pytest.mark.parametrize("outlier", [1e8, math.inf])
def test_whole_outliers_leave_no_rest(loss: Callable[..., robust.RobustLoss], outlier: float) -> None:
    """0.29 · 100 is 28.999999999999996 in binary."""
    rest = sample(71)
    losses = torch.cat([torch.full((29,), outlier, dtype=torch.float64), rest])
    assert float(loss(losses, 0.5, 0.29).loss) == pytest.approx(float(loss(rest, 0.5, 0.0).loss), rel=1e-12)


@pytest.mark.parametrize("loss", DORO)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_counts_every_sample(loss: Callable[..., robust.RobustLoss], kind: torch.dtype) -> None:
    """bfloat16 has no whole numbers over 256 of its own."""
    losses = torch.rand(3000, generator=torch.Generator().manual_seed(0)).to(kind)
    for alpha in (0.5, 0.1, 0.003):
        found, exact = loss(losses, alpha, 0.05), loss(losses.double(), alpha, 0.05)
        assert (found.loss.dtype, found.weights.dtype) == (kind, kind)
        assert float(found.loss) == pytest.approx(float(exact.loss), rel=torch.finfo(kind).eps)
        torch.testing.assert_close(found.weights.double(), exact.weights, rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-25, 1e25])
@pytest.mark.parametrize("shift", [0.0, 2.0**22])
def test_chi_square_keeps_its_digits(factor: float, shift: float) -> None:
    losses = torch.tensor([1.0, 2.0, 3.0, 0.0])
    plain, other = robust.chi_square(losses, 0.6), robust.chi_square((losses + shift) * factor, 0.6)
    tolerance = 1e-6 if shift == 0 else 0.1  # so large a shift leaves the float32 two bits after the point
    torch.testing.assert_close(other.weights, plain.weights, rtol=tolerance, atol=0)
    torch.testing.assert_close(other.loss / factor - shift, plain.loss, rtol=1e-6, atol=shift * 2e-7)


def test_single_precision_is_near_double() -> None:
    losses = sample(2000, seed=4).float()
    for alpha in (0.05, 0.3, 0.9, 0.9999):
        found, exact = robust.chi_square(losses, alpha), robust.chi_square(losses.double(), alpha)
        assert float(found.loss) == pytest.approx(float(exact.loss), rel=1e-6)
        assert float((found.weights.double() - exact.weights).abs().max()) < 1e-6


@pytest.mark.parametrize("loss", DORO)
def test_hardly_any_share_is_the_largest_loss(loss: Callable[..., robust.RobustLoss]) -> None:
    losses = sample(1000).float()
    assert loss(losses, 1e-200, 0.0).loss == losses.max()
    assert loss(losses, 1e-9, 0.1).loss == losses.sort(descending=True).values[100]


def test_bad_arguments() -> None:
    losses = torch.ones(4)
    for alpha in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="alpha in"):
            robust.cvar(losses, alpha)
    with pytest.raises(ValueError, match="eps in"):
        robust.cvar_doro(losses, 0.5, 1.0)
    with pytest.raises(ValueError, match="trim"):
        robust.chi_square_doro(losses, 0.5, 0.1, "round")
    with pytest.raises(ValueError, match="at least one"):
        robust.erm(torch.empty(0))
    with pytest.raises(ValueError, match="reduction='none'"):
        robust.cvar(torch.tensor(1.0), 0.5)
    with pytest.raises(TypeError, match="floating-point"):
        robust.cvar(torch.ones(4, dtype=torch.int64), 0.5)
