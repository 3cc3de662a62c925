"""The certificate: whatever the data, the true center lies within the bound."""

import numpy as np
import pytest
import torch

from geonorm.functional import center_with_info
from geonorm.ops import using_backend
from geonorm.ops.grouping import Axes
from geonorm.ops.torch import solver
from helpers.oracles import center_by_bisection, hostile_groups, hostile_phi, interval_holds_center

EXTENDED = np.finfo(np.longdouble).eps < 1e-18
ROWS, CASES = 50, 150  # times 4 weightings: 30,000 groups


@pytest.mark.parametrize(
    "weighting", ["none", *[pytest.param(kind, marks=pytest.mark.slow) for kind in ("mask", "counts", "fractions")]]
)
def test_bound_is_never_below_the_true_error(weighting: str) -> None:
    rng = np.random.default_rng(["none", "counts", "fractions", "mask"].index(weighting))
    for _ in range(CASES):
        members = int(rng.choice([1, 2, 3, 4, 5, 8, 16, 33, 100, 300]))
        dtype = np.float64 if EXTENDED and rng.random() < 0.5 else np.float32
        x = hostile_groups(rng, ROWS, members).astype(dtype)
        phi = hostile_phi(rng)
        weight = np.ones_like(x)
        if weighting == "counts":
            weight = rng.integers(0, 4, x.shape).astype(dtype)
        elif weighting == "fractions":
            weight = (rng.random(x.shape) * 10.0 ** rng.integers(-3, 3)).astype(dtype)
        elif weighting == "mask":
            weight = (rng.random(x.shape) < 0.7).astype(dtype)
        weight[:, 0] = np.maximum(weight[:, 0], 0.5)
        given = None if weighting == "none" else torch.from_numpy(weight)
        info = center_with_info(torch.from_numpy(x), phi, 1, keepdim=True, element_weight=given)
        found = info.center.double().numpy().astype(np.longdouble)
        inside = interval_holds_center(x, weight, phi, found, info.bound.numpy().astype(np.longdouble))
        assert inside.all(), f"φ={phi}, {dtype.__name__}, m={members}: rows {np.flatnonzero(~inside)}"
        assert int(info.sweeps.max()) < solver.MAX_SWEEPS


def test_bound_against_bisection() -> None:
    rng = np.random.default_rng(9)
    for _ in range(40):
        x, phi = hostile_groups(rng, 10, int(rng.integers(1, 60))).astype(np.float32), hostile_phi(rng)
        info = center_with_info(torch.from_numpy(x), phi, 1, keepdim=True)
        error = np.abs(info.center.double().numpy() - center_by_bisection(x, phi))
        assert (error <= info.bound.numpy()).all()


def test_bound_is_useful() -> None:
    """On ordinary data the certificate is a few rounding errors wide, not a formality."""
    x = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    for phi, limit in ((1.2, 2e-5), (1.5, 1e-5), (3.0, 1e-5), (50.0, 1e-5)):
        assert center_with_info(x, phi, 1).bound.max() < limit
        assert center_with_info(x.double(), phi, 1).bound.max() < limit * 1e-8


@pytest.mark.parametrize(("phi", "most"), [(1.2, 12), (1.5, 6), (1.75, 5), (2.5, 6), (8.0, 6)])
@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_few_sweeps(phi: float, most: int, backend: str) -> None:
    """A hard group may cost the kernels two sweeps more: most groups need one."""
    normal = torch.randn(16, 4096, generator=torch.Generator().manual_seed(1))
    outlier = normal.clone()
    outlier[:, 0] = 1e6
    for x in (normal, normal.exp(), normal.relu(), (normal - 1.28).relu(), outlier, (normal * 8).round() / 8):
        with using_backend(backend):
            sweeps = center_with_info(x, phi, 1).sweeps
        assert sweeps.max() <= most + (2 if backend == "auto" else 0)


@pytest.mark.parametrize("shape", [(3, 1000), (70, 37), (1, 4001)])
@pytest.mark.parametrize("weighted", [False, True])
def test_tiles_do_not_change_the_result(
    shape: tuple[int, int], weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).relu()
    weight = torch.rand(shape, generator=generator, dtype=torch.float64) if weighted else None
    whole = center_with_info(x, 1.3, 1, element_weight=weight)
    monkeypatch.setattr(solver, "_TILE", 64)
    tiled = center_with_info(x, 1.3, 1, element_weight=weight)
    torch.testing.assert_close(tiled.center, whole.center, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("phi", "sweeps", "tolerance"), [(1.5, 4, 2e-6), (1.75, 3, 2e-6), (3.0, 4, 2e-6), (2.5, 4, 2e-6)]
)
def test_fixed_sweeps_reach_the_center_of_ordinary_data(phi: float, sweeps: int, tolerance: float) -> None:
    normal = torch.randn(32, 2048, generator=torch.Generator().manual_seed(3))
    for x in (normal, normal.relu(), normal.exp()):
        fixed = center_with_info(x, phi, 1, sweeps=sweeps)
        adaptive = center_with_info(x, phi, 1)
        assert fixed.sweeps.max() <= sweeps
        assert (fixed.center - adaptive.center).abs().max() <= tolerance * x.std(1).max()
        assert bool(((fixed.center - adaptive.center).abs() <= fixed.bound + adaptive.bound).all())


def test_too_few_sweeps_say_so_in_the_bound() -> None:
    x = torch.randn(8, 500, generator=torch.Generator().manual_seed(4)).exp()
    one, truth = center_with_info(x, 1.1, 1, sweeps=1), center_with_info(x, 1.1, 1)
    assert bool(((one.center - truth.center).abs() <= one.bound).all())
    assert one.bound.min() > 1e-3


def test_look_keeps_its_digits_under_an_offset() -> None:
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(5)) * 0.08 + 2048
    seen = solver.measure_extent(x, None, Axes((1,)), Axes((1,)).extremes(x))
    torch.testing.assert_close(seen.mean, x.double().mean(1, keepdim=True), rtol=0, atol=1e-7)
