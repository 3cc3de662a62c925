"""The joint center of whole samples: against a solver in extended precision, its laws, its dtypes and its errors."""

import math

import numpy as np
import pytest
import torch

from geonorm.functional import guard, joint_center, joint_center_with_info
from helpers.oracles import hostile_batch, joint_center_by_newton

PHIS = [1.0, 1.2, 1.5, 2.0, 3.0, 6.0]
EPS = torch.finfo(torch.float64).eps


def check_against_the_truth(seed: int) -> bool:
    """The minimizer lies within the bound, the least objective within the gap. Whether the bound is tight."""
    rng = np.random.default_rng(seed)
    batch, phi = hostile_batch(rng), float(rng.choice(PHIS))
    info = joint_center_with_info(torch.from_numpy(batch), phi)
    wide = batch.astype(np.longdouble).reshape(*batch.shape[:2], -1)
    scale, y = info.scale.numpy().astype(np.longdouble), info.center.numpy().astype(np.longdouble)
    if not scale.any():
        assert (wide == y[:, None]).all()
        assert info.bound == info.gap == 0
        return True
    unit = scale * np.sqrt(np.longdouble(len(y)))
    wide = wide - y[:, None]  # the center that was returned is 0
    mean = wide.mean(2, keepdims=True)
    points = mean[..., 0] / unit
    inner = np.sqrt((((wide - mean) ** 2).mean(2) / unit**2).sum(1))
    truth = joint_center_by_newton(points, inner, phi)

    def objective(u: np.ndarray) -> np.longdouble:
        d = np.sqrt(inner**2 + ((points - u) ** 2).sum(1))
        return d.max() * ((d / d.max()) ** np.longdouble(phi)).mean() ** (1 / np.longdouble(phi)) if d.max() else d[0]

    away, worse = np.sqrt((truth**2).sum()), objective(0 * truth) - objective(truth)
    label = f"seed {seed}, shape {batch.shape}, phi {phi}, off by {away}, worse by {worse}: {info}"
    assert away <= float(info.bound) * (1 + 1e-12), label
    assert worse <= float(info.gap), label
    assert abs(float(info.objective) - objective(0 * truth)) <= float(info.gap), label
    return float(info.bound) <= 1e-8 * float(info.distance.median()) or float(info.gap) <= 1e-8 * float(info.objective)


def test_against_the_truth() -> None:
    assert sum(check_against_the_truth(seed) for seed in range(100)) >= 99


@pytest.mark.slow
def test_against_the_truth_on_5000_hostile_batches() -> None:
    assert sum(check_against_the_truth(seed) for seed in range(100, 5100)) >= 4950


def batch(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def apart(one: torch.Tensor, other: torch.Tensor, scale: torch.Tensor) -> float:
    """The distance of two centers, in the unit of the bound."""
    return float(((one - other).double() / scale).square().mean().sqrt())


shapes = pytest.mark.parametrize("shape", [(17, 3), (6, 3, 5), (9, 3, 2, 2)])
phis = pytest.mark.parametrize("phi", PHIS)


@phis
@shapes
def test_it_is_as_good_as_asked(shape: tuple[int, ...], phi: float) -> None:
    info = joint_center_with_info(batch(*shape), phi)
    assert info.bound <= 1e-9 * info.distance.median()
    assert info.gap <= 1e-9 * info.objective
    assert info.sweeps < 20


@phis
@shapes
def test_shift(shape: tuple[int, ...], phi: float) -> None:
    x = batch(*shape)
    shift = torch.tensor([3.0, -700.0, 1e5], dtype=torch.float64)
    here = joint_center_with_info(x, phi)
    there = joint_center_with_info(x + shift.reshape(-1, *[1] * (x.dim() - 2)), phi)
    rounding = 64 * EPS * 1e5 / float(here.scale.min())  # of the shifted samples: another batch, by so much
    assert apart(here.center + shift, there.center, here.scale) <= float(here.bound + there.bound) + rounding


@phis
@shapes
def test_powers_of_two_change_no_bit(shape: tuple[int, ...], phi: float) -> None:
    x = batch(*shape)
    factor = torch.tensor([2.0, 0.25, -8.0], dtype=torch.float64)
    here = joint_center_with_info(x, phi)
    there = joint_center_with_info(x * factor.reshape(-1, *[1] * (x.dim() - 2)), phi)
    assert torch.equal(there.center, here.center * factor)
    assert torch.equal(there.scale, here.scale * factor.abs())
    assert torch.equal(there.distance, here.distance)
    assert there.bound == here.bound


@phis
@shapes
def test_order_of_samples_and_channels(shape: tuple[int, ...], phi: float) -> None:
    x = batch(*shape)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    here, there = joint_center_with_info(x, phi), joint_center_with_info(x[rows][:, [2, 0, 1]], phi)
    assert apart(here.center[[2, 0, 1]], there.center, there.scale) <= float(here.bound + there.bound)
    torch.testing.assert_close(there.distance, here.distance[rows])


@shapes
def test_the_mean_at_2(shape: tuple[int, ...]) -> None:
    x = batch(*shape)
    info = joint_center_with_info(x, 2)
    torch.testing.assert_close(info.center, x.mean([d for d in range(x.dim()) if d != 1]), rtol=0, atol=1e-14)
    assert info.bound < 1e-12


@phis
def test_one_sample_and_equal_samples(phi: float) -> None:
    for x in (batch(1, 4), batch(1, 4, 9), batch(1, 4).expand(6, 4), torch.zeros(3, 2, dtype=torch.float64)):
        info = joint_center_with_info(x, phi)
        torch.testing.assert_close(info.center, x[0] if x.dim() == 2 else x[0].mean(1), rtol=1e-14, atol=0)
        assert info.bound <= 1e-12


def test_in_one_channel_it_is_the_median() -> None:
    for n in (3, 4, 5, 6, 21):
        x = batch(n, 1, seed=n)
        info = joint_center_with_info(x)
        assert x.sort(0).values[(n - 1) // 2] - 1e-12 <= info.center <= x.sort(0).values[n // 2] + 1e-12
        assert info.gap <= 1e-12 * info.objective
        if n % 2:
            assert info.bound <= 1e-12
        else:  # any point between the middle two will do
            assert info.bound >= 0.5 * (x.sort(0).values[n // 2] - x.sort(0).values[n // 2 - 1]) / info.scale


def test_a_sample_that_is_the_center() -> None:
    """Vardi and Zhang: the corners of a square and its middle, thrice or once, and off the middle."""
    corners = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    for point, times in ((0.0, 1), (0.0, 3), (0.2, 1)):
        x = torch.cat([corners, torch.full((times, 2), point, dtype=torch.float64)])
        info = joint_center_with_info(x)
        assert info.center.tolist() == pytest.approx([point, point], abs=1e-14)
        assert info.bound <= 1e-12


@pytest.mark.parametrize("huge", [1e3, 1e10, 1e30])
def test_broken_samples_move_it_little(huge: float) -> None:
    x = batch(20, 3, 4)
    clean = joint_center_with_info(x)
    spoiled = x.clone()
    spoiled[:6] *= huge
    info = joint_center_with_info(spoiled)
    assert apart(info.center, clean.center, clean.scale) <= 1.0
    assert info.bound <= 1e-9


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_samples_that_are_not_finite_are_ignored(bad: float) -> None:
    for x in (batch(9, 3), batch(9, 3, 4)):
        spoiled = x.clone()
        spoiled[[0, 5], 1] = bad
        kept = [1, 2, 3, 4, 6, 7, 8]
        info, without = joint_center_with_info(spoiled), joint_center_with_info(x[kept])
        assert torch.equal(info.center, without.center)
        assert info.bound == without.bound
        assert torch.equal(info.distance[kept], without.distance)
        assert info.distance[[0, 5]].tolist() == [math.inf, math.inf]


@phis
def test_masks(phi: float) -> None:
    x = batch(8, 3, 6)
    mask = torch.rand(8, 3, 6, generator=torch.Generator().manual_seed(2)) < 0.6
    mask[2] = False
    mask[3:, 0] |= ~mask[3:, 0].any(1, keepdim=True)
    mask[4, 1] = False
    info = joint_center_with_info(torch.where(mask, x, math.nan), phi, mask=mask)
    assert info.distance[2] == 0
    assert info.bound <= 1e-9 * info.distance.median()
    # Brute force: no point nearby has a smaller sum of distances, with the moments written out.
    m = torch.stack([torch.stack([x[i, c][mask[i, c]].mean() for c in range(3)]) for i in range(8)])
    gaps = (x - m[..., None]).square()
    v = torch.stack([torch.stack([gaps[i, c][mask[i, c]].mean() for c in range(3)]) for i in range(8)])

    def objective(y: torch.Tensor) -> torch.Tensor:
        d = (((v + (m - y).square()) / info.scale.square()).nanmean(1))[[0, 1, 3, 4, 5, 6, 7]].sqrt()
        return d.pow(phi).mean().pow(1 / phi)

    torch.testing.assert_close(objective(info.center), info.objective)
    for step in 1e-3 * batch(50, 3, seed=3):
        assert objective(info.center + step) > info.objective


def test_a_channel_without_values() -> None:
    x, mask = batch(8, 3, 6), torch.ones(8, 3, 6)
    mask[:, 1] = 0
    info, without = joint_center_with_info(x, mask=mask), joint_center_with_info(x[:, [0, 2]])
    assert info.center[1].isnan()
    torch.testing.assert_close(info.center[[0, 2]], without.center, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(info.distance, without.distance)
    assert info.bound < 1e-8
    nothing = joint_center_with_info(x, mask=torch.zeros(8, 3, 6))
    assert nothing.center.isnan().all()
    assert nothing.bound.isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    """The exact center of the rounded samples, rounded once; the rounding is in the bound."""
    for shape in ((12, 4), (12, 4, 5)):
        x = batch(*shape, dtype=dtype)
        info, exact = joint_center_with_info(x), joint_center_with_info(x.double())
        assert info.center.dtype == torch.float32
        assert info.bound.dtype == torch.float64
        assert torch.equal(info.center, exact.center.float())
        assert apart(info.center, exact.center, exact.scale) <= info.bound <= 1e-6


def test_dimensions_and_no_gradient() -> None:
    x = batch(5, 4, 6, 3)
    expected = joint_center(x)
    assert torch.equal(joint_center(x.permute(2, 1, 3, 0), 1.0, -1, 1), expected)
    mask = torch.rand(5, 1, 6, 3) < 0.8
    moved = joint_center(x.permute(1, 2, 0, 3), 1.0, 2, 0, mask=mask.permute(1, 2, 0, 3))
    assert torch.equal(moved, joint_center(x, mask=mask))
    assert not joint_center(x.requires_grad_()).requires_grad


def test_the_guard_s_center_is_near() -> None:
    """The guard stops after two steps of Weiszfeld; its scales are the same."""
    x = batch(64, 8, 5)
    found, info = guard(x), joint_center_with_info(x)
    torch.testing.assert_close(found.scale, info.scale)
    assert apart(found.center, info.center, info.scale) <= 0.05 * info.distance.median()


def test_beyond_float64_it_says_so() -> None:
    for x in (batch(6, 2) * 1e-200, batch(6, 2) * 1e200):
        info = joint_center_with_info(x)
        assert info.bound == math.inf


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"phi": 0.9}, ValueError, "expected 1 <= phi < inf"),
        ({"phi": math.inf}, ValueError, "expected 1 <= phi < inf"),
        ({"phi": math.nan}, ValueError, "expected 1 <= phi < inf"),
        ({"phi": True}, TypeError, "expected phi to be a number"),
        ({"phi": "1"}, TypeError, "expected phi to be a number"),
        ({"sample_dim": 1}, ValueError, "to differ"),
        ({"channel_dim": 4}, IndexError, "expected channel_dim in"),
        ({"sample_dim": 0.0}, TypeError, "expected sample_dim to be an int"),
        ({"x": torch.ones(3, 2, dtype=torch.int64)}, TypeError, "floating-point dtype"),
        ({"x": torch.ones(3)}, ValueError, "a dimension of samples"),
        ({"x": torch.ones(0, 2)}, ValueError, "at least one value"),
        ({"mask": torch.ones(7)}, ValueError, "broadcast"),
    ],
)
def test_errors(arguments: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        joint_center(**{"x": torch.randn(5, 3), **arguments})
