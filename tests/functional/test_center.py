"""The center against ground truth, its closed forms, its shapes and dtypes, and what it says of bad input."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geonorm.functional import center, center_with_info
from helpers.slow_cases import slow_except

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "center_vectors.json").read_text())["cases"]
NAMES = [case["name"] for case in VECTORS]


def floored_bias(x: torch.Tensor, mu: float, phi: float) -> float:
    """How far the documented floor moves the gradient when k values lie inside it: Σ_rest w · δ^(2−φ) / k."""
    delta = 4 * torch.finfo(x.dtype).eps * x.abs().max()
    r = (x - mu).abs()
    inside = r <= delta
    if phi >= 2 or not bool(inside.any()):
        return 0.0
    rest = r[~inside].pow(phi - 2).sum()
    return 2 * float(rest * delta ** (2 - phi) / inside.sum())


@pytest.mark.parametrize("case", VECTORS, ids=NAMES)
def test_vectors_float64(case: dict) -> None:
    phi, mu = float(case["phi"]), float(case["mu"])
    x = torch.tensor([float(v) for v in case["x"]], dtype=torch.float64, requires_grad=True)
    sigma = float(x.detach().std(correction=0))
    power = torch.tensor(phi, dtype=torch.float64, requires_grad=True)
    info = center_with_info(x, power)
    info.center.backward()
    error = abs(info.center.item() - mu)
    rounding = torch.finfo(torch.float64).eps * abs(mu)  # offset1000: the answer itself is a rounded number
    assert error <= 1e-12 * sigma + rounding
    assert error <= info.bound.item() + 1e-300

    share = torch.tensor([float(v) for v in case["dmu_dx"]], dtype=torch.float64)
    gap = float(case["min_gap_rel"])
    tolerance = 1e-9 if gap > 1e-6 else 1e-9 + floored_bias(x.detach(), mu, phi)
    if 0 < gap <= 1e-6:  # the center differs from a value by rounding: the derivative is that of the rounded distance
        tolerance += 1e-13 / gap
    assert x.grad.sum().item() == pytest.approx(1, abs=1e-12)
    assert (x.grad - share).abs().max() <= tolerance
    assert x.grad.min() >= 0

    if case["dmu_dphi"] is not None:
        slope = float(case["dmu_dphi"])
        assert abs(power.grad.item() - slope) <= 1e-9 * max(sigma, abs(slope)) + tolerance * sigma
    else:
        assert power.grad.item() == 0


@pytest.mark.parametrize("case", VECTORS, ids=NAMES)
def test_vectors_float32(case: dict) -> None:
    phi, mu = float(case["phi"]), float(case["mu"])
    x = torch.tensor([float(v) for v in case["x"]], dtype=torch.float32)
    sigma = float(x.double().std(correction=0))
    info = center_with_info(x, phi)
    error = abs(info.center.double().item() - mu)
    widening = max(1.0, 0.05 / (phi - 1)) if phi > 1 else 1.0
    assert error <= 1e-6 * max(sigma, abs(mu)) * widening
    assert error <= info.bound.item()


def test_closed_forms() -> None:
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(center(x, 1, 1), torch.quantile(x, 0.5, dim=1))
    torch.testing.assert_close(center(x, 2, 1), x.mean(1))
    torch.testing.assert_close(center(x, math.inf, 1), (x.amin(1) + x.amax(1)) / 2)
    torch.testing.assert_close(center(x[:, :39], 1, 1), x[:, :39].median(1).values)
    assert center_with_info(x, 2, 1).sweeps.max() == 0


def test_phi_per_group_mixes_all_forms() -> None:
    x = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    phis = [1.0, 1.3, 2.0, 2.0001, 5.0, math.inf]
    phi = torch.tensor(phis, dtype=torch.float64, requires_grad=True)
    mixed = center(x, phi, (0, 2))
    alone = torch.stack([center(x[:, i], p) for i, p in enumerate(phis)])
    torch.testing.assert_close(mixed, alone, rtol=0, atol=1e-13)
    grads = torch.autograd.grad(mixed.sum(), (x, phi))
    expected = torch.autograd.grad(alone.sum(), x)[0]
    torch.testing.assert_close(grads[0], expected, rtol=0, atol=1e-12)
    assert grads[1][0] == 0
    assert grads[1][-1] == 0


def test_shapes() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert center(x, 1.5).shape == ()
    assert center(x, 1.5, keepdim=True).shape == (1, 1, 1, 1)
    assert center(x, 1.5, (0, 2, 3)).shape == (3,)
    assert center(x, 1.5, (0, -1, -2), keepdim=True).shape == (1, 3, 1, 1)
    assert center(x, 1.5, -1).shape == (2, 3, 4)
    assert center(x, torch.full((3,), 1.5), (0, 2, 3)).shape == (3,)
    assert center(x, torch.full((1, 3, 1, 1), 1.5), (0, 2, 3)).shape == (3,)
    assert center(x, torch.full((3, 1), 1.5), (0, 3)).shape == (3, 4)
    assert center(torch.tensor(3.0), 1.5).item() == 3.0
    assert center(torch.tensor(3.0), 1.5, keepdim=True).shape == ()
    assert center(torch.randn(0, 5), 1.5, 1).shape == (0,)
    assert center(torch.randn(4, 0, 5), 1.5, (0, 2)).shape == (0,)
    assert center(torch.randn(4, 1), 1.5, 1).shape == (4,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 4.0, math.inf])
def test_dtypes(dtype: torch.dtype, phi: float) -> None:
    x = (torch.randn(6, 33, generator=torch.Generator().manual_seed(2)) * 4).to(dtype).requires_grad_()
    info = center_with_info(x, phi, 1)
    assert info.center.dtype == dtype
    truth = center(x.detach().double(), phi, 1)
    assert bool(((info.center.double() - truth).abs() <= info.bound).all())
    info.center.sum().backward()
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad.sum(1).float(), torch.ones(6), rtol=0, atol=0.05)


def test_layouts() -> None:
    x = torch.randn(4, 6, 5, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = center(x, 1.3, (0, 2, 3))
    for other in (
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(2, 3).contiguous().transpose(2, 3),
        torch.stack([x, x], -1)[..., 0],
        x.flip(0).flip(0),
    ):
        torch.testing.assert_close(center(other, 1.3, (0, 2, 3)), expected, rtol=0, atol=1e-14)
    broadcast = torch.randn(5, 1).expand(5, 9)
    torch.testing.assert_close(center(broadcast, 1.3, 1), broadcast[:, 0])


def test_extreme_magnitudes() -> None:
    x = torch.tensor([-3.0, 1.0, 2.0, 3.0])
    for phi in (1.0, 1.1, 1.5, 2.0, 3.0, math.inf):
        for exponent in (-149, -126, -100, -40, 40, 100, 126):
            scale = 2.0**exponent
            moved = x.double() * scale
            value = center(moved.float(), phi).double().item() / scale
            assert value == pytest.approx(center(x, phi).double().item(), rel=1e-6, abs=1e-45 / scale)


def test_offset_of_a_million_deviations() -> None:
    generator = torch.Generator().manual_seed(4)
    x = (torch.randn(2, 500, generator=generator) + 2**20).float()
    info = center_with_info(x, 1.5, 1)
    truth = center(x.double(), 1.5, 1)
    assert (info.center.double() - truth).abs().max() <= 0.125  # half a unit in the last place of the answer
    assert bool(((info.center.double() - truth).abs() <= info.bound).all())


def test_outlier_does_not_cost_digits_of_the_bulk() -> None:
    """The tolerance follows the values near the center, not the standard deviation that the outlier inflates."""
    x = torch.randn(1, 500, generator=torch.Generator().manual_seed(5))
    x[0, 0] = 1e6
    error = center(x, 1.2, 1).double() - center(x.double(), 1.2, 1)
    assert error.abs().max() < 1e-6


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_a_bad_value_stays_in_its_group(bad: float, phi: float) -> None:
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(6), requires_grad=True)
    spoilt = x.detach().clone()
    spoilt[1, 3] = bad
    spoilt.requires_grad_()
    clean, dirty = center(x, phi, 1), center(spoilt, phi, 1)
    clean.sum().backward()
    dirty.sum().backward()
    for row in (0, 2):
        assert dirty[row] == clean[row]
        assert torch.equal(spoilt.grad[row], x.grad[row])
    if math.isnan(bad) or phi not in (1, math.inf):
        assert dirty[1].isnan()


@pytest.mark.parametrize("phi", [1.0, 1.2, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_masked_entries_change_nothing(phi: float, bad: float) -> None:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(4, 15, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 15, generator=generator) < 0.7
    mask[:, 0] = True
    results = []
    for fill in (0.0, bad):
        values = torch.where(mask, x, fill).requires_grad_()
        weight = mask.double().requires_grad_()
        mu = center(values, phi, 1, element_weight=weight)
        grads = torch.autograd.grad((mu * torch.arange(1.0, 5)).sum(), (values, weight))
        results.append((mu.detach(), *grads))
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
    kept = torch.stack([center(row[m], phi) for row, m in zip(x, mask, strict=True)])
    torch.testing.assert_close(results[0][0], kept, rtol=0, atol=1e-13)
    assert torch.equal(center(torch.where(mask, x, bad), phi, 1, element_weight=mask), results[0][0])


def test_weights_broadcast() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    weight = torch.rand(3, 1, 5, dtype=torch.float64)
    torch.testing.assert_close(
        center(x, 1.5, (0, 2), element_weight=weight), center(x, 1.5, (0, 2), element_weight=weight.expand(3, 4, 5))
    )


ERRORS = [
    (lambda: center(torch.randn(3), 0.9), ValueError, "expected phi >= 1 (got 0.9)"),
    (lambda: center(torch.randn(3), math.nan), ValueError, "expected phi >= 1 (got nan)"),
    (lambda: center(torch.randn(3), torch.tensor(math.nan)), ValueError, "expected phi >= 1 (got nan)"),
    (lambda: center(torch.randn(3, 2), torch.tensor([1.5, 0.5]), 0), ValueError, "expected phi >= 1 (got 0.5)"),
    (
        lambda: center(torch.randn(3, 2), torch.tensor([1.5, 2.0, 3.0]), 0),
        ValueError,
        "kept dimensions (2,) (got shape (3,))",
    ),
    (lambda: center(torch.randn(3), "1.5"), TypeError, "phi to be a float or a floating-point tensor (got str)"),
    (lambda: center(torch.randn(3), torch.tensor(2)), TypeError, "got dtype torch.int64"),
    (lambda: center(torch.randn(3, 0), 1.5, 1), ValueError, "an empty group has no center"),
    (lambda: center(torch.randn(0), 1.5), ValueError, "an empty group has no center"),
    (
        lambda: center(torch.arange(3), 1.5),
        TypeError,
        "floating-point dtype (got torch.int64); convert it first: x.float()",
    ),
    (lambda: center(torch.randn(3) + 1j, 1.5), TypeError, "real and imaginary parts"),
    (lambda: center([1.0, 2.0], 1.5), TypeError, "torch.as_tensor"),
    (lambda: center(torch.randn(3), 1.5, 1), IndexError, "expected dim in [-1, 0]"),
    (lambda: center(torch.randn(3), 1.5, ()), ValueError, "dim=None"),
    (lambda: center(torch.randn(3, 2), 1.5, (0, -2)), ValueError, "each dimension once"),
    (
        lambda: center(torch.randn(3), 1.5, element_weight=torch.tensor([1.0, -1, 1])),
        ValueError,
        "finite weight >= 0 (got -1.0)",
    ),
    (
        lambda: center(torch.randn(3), 1.5, element_weight=torch.tensor([1.0, math.nan, 1])),
        ValueError,
        "finite weight >= 0 (got nan)",
    ),
    (
        lambda: center(torch.randn(3), 1.5, element_weight=torch.tensor([1.0, math.inf, 1])),
        ValueError,
        "finite weight >= 0 (got inf)",
    ),
    (lambda: center(torch.randn(3), 1.5, element_weight=torch.zeros(3)), ValueError, "weights are all zero"),
    (
        lambda: center(torch.randn(3), 1.5, element_weight=torch.ones(2)),
        ValueError,
        "weight to broadcast to x of shape (3,) (got shape (2,))",
    ),
    (lambda: center(torch.randn(3), 1.5, element_weight=torch.ones(3) * 1j), TypeError, "real or boolean"),
    (lambda: center(torch.randn(3), 1.5, sweeps=0), ValueError, "expected sweeps to be a positive integer"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=[text[:40] for *_, text in ERRORS])
def test_errors_name_the_argument_and_the_cure(call, error, text) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


class TestHardCases:
    """Inputs that are hard for a solver."""

    @pytest.mark.parametrize("phi", [1.01, 1.05, 1.1, 1.5, 2.0, 3.0])
    @pytest.mark.parametrize("zeros", [0.9, 0.98, 0.999])
    @pytest.mark.parametrize("members", slow_except([100, 1024], [100, 1024, 20_000]))
    def test_sparse_data(self, phi: float, zeros: float, members: int) -> None:
        """A sweep that lands on the minimum itself, where one side has no values."""
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(20, members, generator=generator) + 0.5
        x[torch.rand(20, members, generator=generator) < zeros] = 0
        info = center_with_info(x, phi, 1)
        # Sums of 20,000 values are known to about 20 eps each, and a bound has both sides in it.
        assert bool((info.bound <= 2e-4 * x.std(1).clamp_min(1e-10)).all())
        truth = center_with_info(x.double(), phi, 1)
        assert bool(((info.center - truth.center).abs() <= info.bound + truth.bound).all())

    def test_the_minimum_is_the_center(self) -> None:
        x = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
        assert center(x, 1.01).item() == pytest.approx(-1, abs=1e-12)

    def test_expanded_median(self) -> None:
        assert center(torch.tensor([1.0, 2.0, 3.0]).expand(4, 3), 1.0, 0).tolist() == [1, 2, 3]

    @pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 3.0, math.inf])
    @pytest.mark.parametrize(
        ("scale", "weight"), [(1e9, 1e30), (1.0, 2e38), (1e-15, 1e-30), (1e30, 1e-30), (1.0, 1e-44)]
    )
    def test_extreme_weights(self, phi: float, scale: float, weight: float) -> None:
        x = (torch.tensor([1.0, 2.0, 4.0]) * scale).requires_grad_()
        w = torch.full((3,), weight, requires_grad=True)
        power = torch.tensor(phi, requires_grad=True)
        info = center_with_info(x, power, element_weight=w)
        plain = center_with_info(x, phi)
        assert abs(info.center - plain.center) <= info.bound + plain.bound
        info.center.backward()
        assert bool(x.grad.isfinite().all())
        assert x.grad.sum().item() == pytest.approx(1, abs=1e-5)
        assert bool(power.grad.isfinite())

    def test_weights_in_more_digits_than_x(self) -> None:
        x = torch.tensor([1.0, 2.0, 3.0])
        assert center(x, 1.0, element_weight=torch.tensor([2**24 + 1, 2**24, 1])).item() == 1.5
        tiny = torch.tensor([1e-60, 2e-60, 1e-60], dtype=torch.float64)
        assert center(x, 2.0, element_weight=tiny).item() == pytest.approx(2)

    def test_weighted_median_at_nearly_half(self) -> None:
        x = torch.tensor([0.0, 1.0, 0.9], dtype=torch.float64)
        assert center(x, 1.0, element_weight=torch.tensor([1e13, 1e13, 1.0], dtype=torch.float64)).item() == 0.9

    def test_median_beside_huge_values(self) -> None:
        assert center(torch.tensor([1e30, 1e-30, -1e30]), 1.0).item() == pytest.approx(1e-30)
        x = torch.tensor([3e38, 0.0123456, 0.02, 0.01, -3e38], requires_grad=True)
        center(x, 1.0).backward()
        assert x.grad.tolist() == [0, 1, 0, 0, 0]

    @pytest.mark.parametrize("phi", [1.0, 1.2, 1.5, 2.0, 3.0, 50.0, math.inf])
    def test_range_beyond_the_largest_float(self, phi: float) -> None:
        x = torch.tensor([3e38, -3e38, -3e38, 1e38], requires_grad=True)
        mu = center(x, phi)
        mu.backward()
        scaled = (x.detach().double() * 1e-38).requires_grad_()
        expected = center(scaled, phi)
        expected.backward()
        assert mu.item() * 1e-38 == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        torch.testing.assert_close(x.grad.double(), scaled.grad, rtol=1e-4, atol=1e-5)

    def test_second_order_ignores_weight_0(self) -> None:
        x = torch.tensor([0.0, 1.0, 3.0, 7.0], dtype=torch.float64)
        w = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
        blocks = torch.autograd.functional.hessian(lambda a, b: center(a, 1.5, element_weight=b), (x, w))
        assert blocks[0][1][:, 3].abs().max() == 0
        torch.testing.assert_close(blocks[0][1], blocks[1][0].T)

    def test_phi_next_to_1(self) -> None:
        phi = torch.tensor(1 + 1e-12, dtype=torch.float64, requires_grad=True)
        w = torch.ones(5, requires_grad=True)
        center(torch.tensor([-1.3, -0.2, 0.4, 0.9, 3.1]), phi, element_weight=w).backward()
        assert bool(phi.grad.isfinite())
        assert bool(w.grad.isfinite().all())

    def test_shared_phi_and_an_unused_nan_group(self) -> None:
        x = torch.randn(3, 9)
        x[0, 0] = math.nan
        phi = torch.tensor(1.5, requires_grad=True)
        center(x, phi, 1)[1:].sum().backward()
        assert bool(phi.grad.isfinite())

    def test_small_shapes(self) -> None:
        assert center(torch.tensor(3.0), 1.5, 0).item() == 3
        assert center(torch.randn(3, 4), torch.tensor([1.5])).shape == ()
        assert center(torch.randn(2, 3, device="meta"), 1.5, 1).shape == (2,)


@pytest.mark.parametrize("dim", [1.0, "a", True, (1.0,), torch.tensor(1)])
def test_dim_of_a_wrong_type(dim: object) -> None:
    with pytest.raises(TypeError, match="expected dim to be an int"):
        center(torch.randn(3, 4), 1.5, dim)


SCRIPT = """
import math, resource, sys, torch
from geonorm.functional import center
phi, count = float(sys.argv[1]), 10**8
torch.manual_seed(0)
x = torch.empty(count)
x.normal_()
center(x[:100_000], phi)  # warm up: code pages do not count
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
value = center(x, phi).item()
print(value, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (4 * count))
"""


@pytest.mark.slow
@pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 3.3, math.inf])
def test_at_most_three_extra_copies(phi: float) -> None:
    """Peak memory beyond x itself, in copies of x, for 1e8 float32 values in one group."""
    run = subprocess.run([sys.executable, "-c", SCRIPT, str(phi)], capture_output=True, text=True, check=True)
    value, copies = (float(v) for v in run.stdout.split())
    assert abs(value) < (1 if math.isinf(phi) else 1e-3)
    assert copies <= 3
