"""Spreads: their values, magnitudes from 1e-30 to 1e30, zeros, masks, and the two regimes of the robust one."""

import math
import re

import pytest
import torch

from geonorm.functional import center, segment_spread, spread
from geonorm.ops.torch.gaussian import robust_factor

KINDS = ["rms", "mean_abs", "max_abs", 1.5, 7.0, math.inf, "robust"]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_power_means() -> None:
    x = torch.randn(4, 50, generator=generator(0), dtype=torch.float64)
    torch.testing.assert_close(spread(x, "rms", 1), x.square().mean(1).sqrt())
    torch.testing.assert_close(spread(x, dim=1), spread(x, 2, 1))
    torch.testing.assert_close(spread(x, "mean_abs", 1), x.abs().mean(1))
    torch.testing.assert_close(spread(x, "max_abs", 1), x.abs().amax(1))
    torch.testing.assert_close(spread(x, 3.5, 1), x.abs().pow(3.5).mean(1).pow(1 / 3.5))
    about = x.mean(1)
    torch.testing.assert_close(spread(x, "rms", 1, about=about), x.std(1, correction=0))
    torch.testing.assert_close(spread(x, "rms", 1, about=about[:, None]), x.std(1, correction=0))
    torch.testing.assert_close(spread(x, "rms", 1, about=0.5), (x - 0.5).square().mean(1).sqrt())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_no_overflow_and_no_underflow(kind: str | float, scale: float) -> None:
    x = torch.randn(3, 40, generator=generator(1))
    moved = (x.double() * scale).float().requires_grad_()
    result = spread(moved, kind, 1)
    torch.testing.assert_close(result.double() / scale, spread(x, kind, 1).double(), rtol=1e-5, atol=0)
    result.sum().backward()
    assert bool(moved.grad.isfinite().all())
    assert bool((moved.grad != 0).any())


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_have_no_spread_and_no_gradient(kind: str | float) -> None:
    x = torch.zeros(2, 5, requires_grad=True)
    result = spread(x, kind, 1)
    result.sum().backward()
    assert result.tolist() == [0, 0]
    if kind not in ("max_abs", math.inf, "robust"):
        assert bool((x.grad == 0).all())
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_masks_and_bad_values(kind: str | float, bad: float) -> None:
    x = torch.randn(3, 12, generator=generator(2), dtype=torch.float64)
    mask = torch.rand(3, 12, generator=generator(3)) < 0.6
    mask[:, 0] = True
    results = []
    for fill in (0.0, bad):
        values = torch.where(mask, x, fill).requires_grad_()
        result = spread(values, kind, 1, element_weight=mask, about=0.1)
        result.sum().backward()
        results.append((result.detach(), values.grad))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    kept = torch.stack([spread(row[m], kind, about=0.1) for row, m in zip(x, mask, strict=True)])
    torch.testing.assert_close(results[0][0], kept)
    x[1, 2] = math.nan
    assert spread(x, kind, 1).isnan().tolist() == [False, True, False]


def test_weight_2_is_the_value_twice() -> None:
    x = torch.randn(9, generator=generator(4), dtype=torch.float64)
    weight = torch.tensor([1.0, 2, 1, 0, 3, 1, 1, 2, 1], dtype=torch.float64)
    twice = x.repeat_interleave(weight.long())
    for kind in KINDS:
        torch.testing.assert_close(spread(x, kind, element_weight=weight), spread(twice, kind))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_dtypes(kind: str | float, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 64, generator=generator(5)) * 100).to(dtype)
    result = spread(x, kind, 1)
    assert result.dtype == dtype
    torch.testing.assert_close(
        result.double(), spread(x.double(), kind, 1), rtol=2 * torch.finfo(dtype).eps + 1e-6, atol=0
    )


def test_shapes() -> None:
    x = torch.randn(2, 3, 4)
    assert spread(x).shape == ()
    assert spread(x, dim=(0, 2), keepdim=True).shape == (1, 3, 1)
    assert spread(x, "robust", (0, 2)).shape == (3,)
    assert spread(torch.tensor(-2.0)).item() == 2
    assert spread(torch.tensor(-2.0), keepdim=True).shape == ()
    assert spread(torch.randn(0, 4), dim=1).shape == (0,)


class TestRobust:
    """s = k·c_φ(|z|), Gaussian-consistent, floored."""

    @pytest.mark.parametrize(
        ("phi", "factor"),
        [
            (1.0, 1.4826),
            (1.1, 1.45317),
            (1.2, 1.4256),
            (1.25, 1.41245),
            (1.5, 1.35222),
            (1.75, 1.2997),
            (2.0, 1.25331),
            (2.5, 1.17467),
            (3.0, 1.11003),
        ],
    )
    def test_factor(self, phi: float, factor: float) -> None:
        assert robust_factor(phi) == pytest.approx(factor, abs=6e-6)

    def test_usual_factors_are_the_computed_ones(self) -> None:
        from geonorm.ops.torch.gaussian import compute_robust_factor, usual_factors

        for phi, factor in usual_factors().items():
            assert compute_robust_factor(phi) == pytest.approx(factor, rel=1e-14)

    def test_factor_closed_forms(self) -> None:
        assert robust_factor(2.0) == pytest.approx(math.sqrt(math.pi / 2), abs=1e-12)
        assert robust_factor(1.0) == pytest.approx(1 / 0.674489750196082, abs=1e-12)

    @pytest.mark.parametrize("phi", [1.0, 1.2, 1.5, 2.0, 3.0])
    def test_normal_data_give_their_deviation(self, phi: float) -> None:
        x = 3 * torch.randn(200_000, generator=generator(6))
        assert spread(x, "robust", phi=phi).item() == pytest.approx(3, rel=0.02)

    def test_one_outlier(self) -> None:
        """An outlier A among m values moves it by about A/m², the mean by A/m and the rms by A/√m."""
        x = torch.randn(1000, generator=generator(7), dtype=torch.float64)
        dirty = x.clone()
        dirty[0] = 1e4
        moved = {kind: (spread(dirty, kind) - spread(x, kind)).item() for kind in ("rms", "mean_abs", "robust")}
        assert moved["robust"] < 0.15
        assert 9 < moved["mean_abs"] < 11
        assert 300 < moved["rms"] < 330

    @pytest.mark.parametrize("zeros", [0.5, 0.9, 0.98])
    def test_floor_keeps_sparse_data_from_collapsing(self, zeros: float) -> None:
        x = torch.randn(5000, generator=generator(8)).abs()
        x[: int(zeros * 5000)] = 0
        bare, floored = spread(x, "robust", floor=0), spread(x, "robust")
        least = 0.05 * math.sqrt(math.pi / 2) * x.mean()
        torch.testing.assert_close(floored, torch.maximum(bare, least))
        if zeros == 0.98:
            assert bare < least

    def test_floor_takes_over_for_rare_huge_outliers(self) -> None:
        x = torch.randn(1000, generator=generator(9), dtype=torch.float64)
        x[0] = 1e6
        x.requires_grad_()
        result = spread(x, "robust", phi=1.1)
        assert result.item() == pytest.approx(0.05 * math.sqrt(math.pi / 2) * x.abs().mean().item())
        result.backward()
        torch.testing.assert_close(x.grad, 0.05 * math.sqrt(math.pi / 2) / 1000 * x.sign())

    def test_is_the_center_of_the_deviations(self) -> None:
        x = torch.randn(4, 60, generator=generator(10), dtype=torch.float64)
        expected = robust_factor(1.3) * center((x - 0.2).abs(), 1.3, 1)
        torch.testing.assert_close(spread(x, "robust", 1, about=0.2, phi=1.3, floor=0), expected)


ERRORS = [
    (
        lambda: spread(torch.randn(3), "std"),
        ValueError,
        "expected kind to be one of ['rms', 'mean_abs', 'max_abs', 'robust']",
    ),
    (lambda: spread(torch.randn(3), 0.5), ValueError, "expected an exponent kind >= 1 (got 0.5)"),
    (lambda: spread(torch.randn(3), math.nan), ValueError, "expected an exponent kind >= 1 (got nan)"),
    (lambda: spread(torch.randn(3), None), TypeError, "a name or a number"),
    (lambda: spread(torch.randn(3), "robust", phi=math.inf), ValueError, "a number in [1, 100]"),
    (lambda: spread(torch.randn(3), "robust", phi=0.5), ValueError, "expected phi, the exponent of the robust spread"),
    (lambda: spread(torch.arange(3)), TypeError, "x.float()"),
    (lambda: spread(torch.randn(3, 0), dim=1), ValueError, "at least one value to reduce"),
    (lambda: spread(torch.randn(3, 4), dim=1, about=torch.randn(4)), ValueError, "expected about to broadcast"),
    (lambda: spread(torch.randn(3), element_weight=-torch.ones(3)), ValueError, "finite weight >= 0"),
    (lambda: spread(torch.randn(3), element_weight=torch.zeros(3)), ValueError, "weights are all zero"),
    (lambda: spread(torch.randn(4, 5), dim=1, about=[1.0] * 5), TypeError, "expected about to be a number or a tensor"),
    (lambda: spread(torch.randn(3), "robust", floor=-1.0), ValueError, "expected floor >= 0"),
    (lambda: segment_spread(torch.randn(3), "rms", torch.tensor([0, 1])), ValueError, "one entry per row"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=[text[:40] for *_, text in ERRORS])
def test_errors(call, error, text) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
