"""The guard's kernels against ``ops/torch/guard.py`` in float64, on batches that break plain solvers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Incoming, Inputs, Rule, choose, guarded, problem
from geonorm.ops import triton as kernels
from geonorm.ops.torch import guard as on_torch
from geonorm.ops.torch import rows
from geonorm.ops.triton.kernels import guard as constants
from helpers.oracles import hostile_batch


def moments(seed: int) -> tuple[Tensor, Tensor]:
    x = torch.from_numpy(hostile_batch(np.random.default_rng(seed))).float()
    return on_torch.row_moments(x)


def agree(found: Tensor, expected: Tensor, name: str, rtol: float = 2e-5) -> None:
    scale = float(expected[expected.isfinite()].abs().max()) if bool(expected.isfinite().any()) else 1.0
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=rtol, atol=rtol * max(scale, 1e-37), equal_nan=True,
        msg=lambda m: f"{name}: {m}",
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_moments_of_hostile_batches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mean, deviation = moments(seed)
    found = kernels.guarded_moments(mean, deviation, 3.0)
    assert found is not None
    # In float64, as torch's float32 squares overflow; but the moments are known to so many roundings of float32 only.
    grain = on_torch.SCALE_ROUNDINGS * torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps
    monkeypatch.setattr(on_torch, "SCALE_ROUNDINGS", grain)
    exact = on_torch.judge_moments(mean.double(), deviation.double(), 3.0)
    for name, mine, other in zip(exact._fields, found.verdict, exact, strict=True):
        agree(mine, other, name)
    verdict = (found.verdict.center.double(), found.verdict.factor.double())  # as rounded to float32
    combined = on_torch.combine_moments(mean.double(), deviation.double(), *verdict)
    for name, mine, other in zip(("mean", "var", "samples"), found[1:], combined, strict=True):
        agree(mine, other.to(mine.dtype), name)


@pytest.mark.parametrize("samples", [1, 3, 4, 5, 256, 257, 700])
def test_numbers_of_samples(samples: int) -> None:
    """Few are not judged. Of more than 256 a subsample gives center and scales."""
    mean, deviation = torch.randn(samples, 3), torch.rand(samples, 3)
    mean[0] *= 50
    found, exact = kernels.guarded_moments(mean, deviation, 3.0), on_torch.guarded_moments(mean, deviation, 3.0)
    assert found is not None
    for name, mine, other in zip(exact.verdict._fields, found.verdict, exact.verdict, strict=True):
        agree(mine, other, name)
    assert int((found.verdict.factor < 1).sum()) == int((exact.verdict.factor < 1).sum()) >= int(samples > 3)


def test_constants() -> None:
    for name in ("MIN_SAMPLES", "MIN_SCALE_RATIO", "SCALE_ROUNDINGS", "MIN_DISTANCE", "MIN_MEDIAN_DISTANCE"):
        assert getattr(constants, name).value == getattr(on_torch, name), name


SHAPES = {
    "NCHW": (12, 5, 4, 3),
    "channels_last": (12, 5, 4, 3),
    "NC": (30, 6),
    "many": (300, 2),
    "one position": (9, 3, 1, 1),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("broken", ["none", "far", "NaN", "Inf", "1e30", "all NaN"])
def test_forward_and_backward(name: str, broken: str) -> None:
    """Against rows in float64. A broken sample comes out as NaN alone, and gets no gradient."""
    x = torch.randn(SHAPES[name]) * 2 + 1
    if name == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    if broken != "none":
        x[2] = {"far": x[2] * 30, "NaN": x[2] * math.nan, "Inf": x[2] * math.inf, "1e30": x[2] * 1e30}.get(broken, x[2])
    if broken == "all NaN":
        x[:] = math.nan
    shape = (1, x.shape[1], *[1] * (x.dim() - 2))
    alpha, shift = torch.rand(shape) + 0.5, torch.randn(shape)
    gamma, beta = torch.rand(shape) + 0.5, torch.randn(shape)
    of = Inputs(x, 2.0, alpha, shift, gamma, beta, None)
    groups, rule = Axes((0, *range(2, x.dim()))), Rule(guard=3.0)
    wide = Inputs(*[value.double() if isinstance(value, Tensor) else value for value in of])
    counts, counted = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    found = kernels.normalize(of, groups, rule, None, counts)
    assert found is not None
    exact = rows.normalize(wide, groups, rule, on_torch.guarded_moments)
    assert exact.saved.samples is not None
    on_torch.count_guarded(counted, problem.factors_of(exact.saved.samples, x))
    assert torch.equal(counts, counted)
    agree(found.output, exact.output, "y", 1e-5)
    for column in (problem.CENTER, problem.SPREAD, problem.MEAN, problem.VAR, problem.MASS):
        agree(found.saved.groups[:, column], exact.saved.groups[:, column], problem.COLUMNS[column])
    g = torch.randn_like(x)
    needs = (True, False, True, True, True, True, False)
    mine = choose.normalize_backward(Incoming(g), of, groups, rule, found.saved, needs)
    expected = rows.normalize_backward(Incoming(g.double()), wide, groups, rule, exact.saved, needs)
    for part, mine_of, other in zip(Inputs._fields, mine, expected, strict=True):
        assert (mine_of is None) == (other is None)
        if mine_of is not None and other is not None and broken != "all NaN":
            agree(mine_of, other, f"d{part}", 1e-5)


def test_the_same_from_the_operator() -> None:
    """Which loses the plan on the way; backward still runs on the kernels."""
    x = torch.randn(12, 5, 4, 3)
    x[2] *= 30
    of, groups, rule = Inputs(x, 2.0, 1.0, None, torch.rand(5, 1, 1), None, None), Axes((0, 2, 3)), Rule(guard=3.0)
    arguments = problem.to_arguments(of, groups, rule)
    y, saved, samples = torch.ops.geonorm.normalize(*arguments)
    direct = choose.normalize(of, groups, rule)
    assert torch.equal(y, direct.output)
    assert torch.equal(saved, direct.saved.groups)
    assert saved[:, problem.BY].unique().tolist() == [problem.BY_TRITON]
    assert kernels.wrote(problem.Saved(saved, samples))
    assert guarded.finite_rows(x, samples, groups) is None
