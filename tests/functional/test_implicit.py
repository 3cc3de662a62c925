"""Derivatives of the center, of first and second order, and under torch.func."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from geonorm.functional import center, segment_center, segment_spread, spread
from helpers.slow_cases import slow_except


def spaced(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random values at least 1/40 apart within the whole tensor: finite differences need a gap from the center."""
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(shape)
    grid = torch.arange(count, dtype=torch.float64) + 0.4 * torch.rand(count, generator=generator, dtype=torch.float64)
    return ((grid[torch.randperm(count, generator=generator)] - count / 2) / 12).reshape(shape).requires_grad_()


def positive(*shape: int) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1).requires_grad_()


@pytest.mark.parametrize("phi", [1.0, 1.25, 1.5, 2.0, 3.5, 10.0, math.inf])
def test_gradient_in_x(phi: float) -> None:
    assert gradcheck(lambda x: center(x, phi, (0, 2)), spaced(2, 3, 5))


@pytest.mark.parametrize("phi", slow_except([1.5, 2.5], [1.3, 1.5, 1.8, 2.0, 2.5, 3.5]))
def test_second_derivative_in_x(phi: float) -> None:
    assert gradgradcheck(lambda x: center(x, phi, (0, 2)), spaced(2, 3, 5))


@pytest.mark.parametrize("phi", slow_except([], [(1.3, 1.8, 2.6), (1.5,), 1.7, (2.0, 2.0, 4.0)]))
def test_all_derivatives(phi: object) -> None:
    """x, φ (per group, shared, scalar) and weight together, to second order."""
    power = torch.tensor(phi, dtype=torch.float64, requires_grad=True)

    def f(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return center(x, p, (0, 2), element_weight=w)

    inputs = (spaced(2, 3, 5), power, positive(2, 3, 5))
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


@pytest.mark.parametrize("phi", [1.0, math.inf])
def test_second_derivative_is_refused_where_there_is_none(phi: float) -> None:
    x = spaced(7)
    (g,) = torch.autograd.grad(center(x, phi), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(g.square().sum(), x)


def test_second_derivative_formula() -> None:
    """∂²μ/∂x_i∂x_j = t_i δ_ij − t_i p_j − p_i t_j + p_i p_j T, with t = (φ−2) sgn(r)|r|^(φ−3)/W and T = Σt."""
    x, phi = spaced(6).detach(), 1.6
    r = x - center(x, phi)
    w = r.abs() ** (phi - 2)
    p, t = w / w.sum(), (phi - 2) * r.sign() * r.abs() ** (phi - 3) / w.sum()
    formula = t.diag() - t.outer(p) - p.outer(t) + p.outer(p) * t.sum()
    torch.testing.assert_close(torch.autograd.functional.hessian(lambda v: center(v, phi), x), formula)


@pytest.mark.parametrize("phi", slow_except([1.0, 1.5], [1.0, 1.5, 2.5, math.inf]))
def test_segment_gradients(phi: float) -> None:
    batch = torch.tensor([0, 3, 0, 3, 1, 3, 0, 1])
    assert gradcheck(lambda x: segment_center(x, phi, batch, 5), spaced(8, 2))
    if phi not in (1, math.inf):
        assert gradgradcheck(
            lambda x, w: segment_center(x, phi, batch, 5, element_weight=w), (spaced(8, 2), positive(8, 2))
        )


@pytest.mark.parametrize(
    "kind", slow_except(["rms", "mean_abs", "max_abs"], ["rms", "mean_abs", "max_abs", 3.0, "robust"])
)
def test_spread_gradients(kind: str | float) -> None:
    batch = torch.tensor([0, 3, 0, 3, 1, 3, 0, 1])
    x, about = spaced(8, 2), torch.tensor([0.31, -0.17], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, a, w: spread(x, kind, 0, about=a, element_weight=w), (x, about, positive(8, 2)))
    assert gradcheck(
        lambda x, a, w: segment_spread(x, kind, batch, 5, about=a, element_weight=w), (x, about, positive(8, 2))
    )
    if kind in ("rms", 3.0):
        assert gradgradcheck(lambda x, a: spread(x, kind, 0, about=a), (x, about))


class TestConventions:
    """What the gradient is where the center is not differentiable."""

    def test_ties_at_the_center_share(self) -> None:
        x = torch.tensor([-1.0, 0, 0, 0, 1], dtype=torch.float64, requires_grad=True)
        center(x, 1.5).backward()
        torch.testing.assert_close(x.grad[1:4], torch.full((3,), 1 / 3, dtype=torch.float64), rtol=0, atol=1e-7)

    def test_a_value_at_the_center_gets_nothing_above_2(self) -> None:
        x = torch.tensor([-1.0, 0, 1], dtype=torch.float64, requires_grad=True)
        center(x, 2.5).backward()
        assert x.grad.tolist() == [0.5, 0.0, 0.5]

    @pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 3.0, math.inf])
    @pytest.mark.parametrize("value", [0.0, 2.5, 1e-30])
    def test_equal_values_share(self, phi: float, value: float) -> None:
        x = torch.full((4,), value, requires_grad=True)
        center(x, phi).backward()
        assert x.grad.tolist() == [0.25] * 4

    def test_median_of_an_even_count(self) -> None:
        x = torch.tensor([0.0, 1, 1, 3, 3, 3, 9, 9], dtype=torch.float64, requires_grad=True)
        center(x, 1.0).backward()
        torch.testing.assert_close(x.grad, torch.tensor([0, 0, 0, 1, 1, 1, 0, 0], dtype=torch.float64) / 3)
        x = torch.tensor([0.0, 1, 1, 3], dtype=torch.float64, requires_grad=True)
        (center(x, 1.0) + center(x, math.inf)).backward()
        assert x.grad.tolist() == [0.5, 0.5, 0.5, 0.5]

    def test_entries_of_weight_0_get_nothing(self) -> None:
        x, weight = spaced(6), torch.tensor([1.0, 0, 2, 1, 0, 1], dtype=torch.float64, requires_grad=True)
        center(x, 1.4, element_weight=weight).backward()
        for g in (x.grad, weight.grad):
            assert (g == 0).tolist() == [False, True, False, False, True, False]

    def test_no_nan_beside_a_tie(self) -> None:
        """Half zeros, as after a ReLU: every gradient is finite, of second order too."""
        x = torch.tensor([0.0, 0, 0, 0, 1, 2, 3], dtype=torch.float64, requires_grad=True)
        for phi in (1.1, 1.5, 2.2, 4.0):
            (g,) = torch.autograd.grad(center(x, torch.tensor(phi)), x, create_graph=True)
            (h,) = torch.autograd.grad(g.square().sum(), x)
            assert bool(g.isfinite().all())
            assert bool(h.isfinite().all())

    @pytest.mark.parametrize("phi", [1.5, 2.0, torch.tensor(1.5), torch.tensor(3.0)], ids=str)
    def test_ignored_entries_of_a_group_that_is_not_finite(self, phi: float | torch.Tensor) -> None:
        weight = torch.tensor([1.0, 1.0, 0.0], requires_grad=True)
        center(torch.tensor([1.0, math.inf, 5.0]), phi, element_weight=weight).backward()
        assert weight.grad is not None
        assert weight.grad[2] == 0


class TestFunctionTransforms:
    """Under torch.func every answer is right, or an error."""

    X = torch.randn(4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    PHI = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 1.1

    @pytest.mark.parametrize("dim", [0, 1, 2])
    @pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, math.inf])
    def test_vmap(self, phi: float, dim: int) -> None:
        mapped = vmap(lambda x: center(x, phi), in_dims=dim)(self.X)
        torch.testing.assert_close(mapped, torch.stack([center(x, phi) for x in self.X.unbind(dim)]))

    def test_vmap_over_x_and_phi(self) -> None:
        torch.testing.assert_close(vmap(lambda x, p: center(x, p, 1))(self.X, self.PHI), center(self.X, self.PHI, 2))
        over_phi = vmap(lambda p: center(self.X[0], p, 1))(self.PHI)
        torch.testing.assert_close(over_phi, torch.stack([center(self.X[0], p, 1) for p in self.PHI]))

    def test_vmap_over_weight(self) -> None:
        weight = torch.rand(4, 3, 5, dtype=torch.float64) + 0.1
        mapped = vmap(lambda x, w: center(x, 1.4, 1, element_weight=w))(self.X, weight)
        torch.testing.assert_close(mapped, center(self.X, 1.4, 2, element_weight=weight))

    def test_grad_jacrev_hessian(self) -> None:
        x = self.X[0]
        reference = x.clone().requires_grad_()
        center(reference, 1.5).backward()
        torch.testing.assert_close(grad(lambda v: center(v, 1.5))(x), reference.grad)
        torch.testing.assert_close(jacrev(lambda v: center(v, 1.5))(x), reference.grad)
        hessian = jacrev(jacrev(lambda v: center(v, 1.5)))(x[0])
        torch.testing.assert_close(hessian, torch.autograd.functional.hessian(lambda v: center(v, 1.5), x[0]))

    def test_per_sample_gradients(self) -> None:
        f = grad(lambda x, p: center(x, p, 1).square().sum(), argnums=(0, 1))
        mapped = vmap(f)(self.X, self.PHI)
        looped = [torch.stack(g) for g in zip(*(f(x, p) for x, p in zip(self.X, self.PHI, strict=True)), strict=True)]
        torch.testing.assert_close(list(mapped), looped)

    def test_forward_mode_is_an_error_not_a_zero(self) -> None:
        with pytest.raises(NotImplementedError, match="jvp"):
            jvp(lambda v: center(v, 1.5), (self.X[0],), (self.X[0],))
        with pytest.raises(NotImplementedError, match="jvp"):
            jacfwd(lambda v: center(v, 1.5))(self.X[0])

    def test_vmap_of_segments_and_spreads(self) -> None:
        batch = torch.tensor([0, 1, 1])
        mapped = vmap(lambda x: segment_center(x, 1.5, batch, 3))(self.X)
        torch.testing.assert_close(mapped, torch.stack([segment_center(x, 1.5, batch, 3) for x in self.X]))
        for kind in ("rms", "max_abs", "robust"):
            torch.testing.assert_close(vmap(lambda x, k=kind: spread(x, k, 1))(self.X), spread(self.X, kind, 2))
            mapped = vmap(grad(lambda x, k=kind: spread(x, k)))(self.X)
            torch.testing.assert_close(mapped, torch.stack([grad(lambda v, k=kind: spread(v, k))(x) for x in self.X]))


@pytest.mark.parametrize(("phi", "share"), [(1.5, 0.35), (1.2, 0.02)])
def test_how_many_values_carry_the_gradient(phi: float, share: float) -> None:
    """1 / Σp² as a share of 4096 normal values: the figures of docs/center.md (median of 200 samples)."""
    x = torch.randn(200, 4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    center(x, phi, 1).sum().backward()
    assert (1 / x.grad.square().sum(1) / 4096).median().item() == pytest.approx(share, abs=0.05 if phi == 1.5 else 0.01)
