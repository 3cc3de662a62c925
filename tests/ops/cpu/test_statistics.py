"""Statistics without an output, and their certificates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geonorm.functional._normalize import make_rule
from geonorm.ops import Axes, Grouping, Inputs, Rule, Segments, choose, cpu, problem
from geonorm.ops.cpu import library
from geonorm.ops.cpu.normalize import dense
from geonorm.ops.cpu.plan import plan
from helpers.oracles import center_by_bisection, hostile_groups
from helpers.slow_cases import slow_except

pytestmark = pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for")

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def state_of(x: torch.Tensor, groups: Grouping, rule: Rule, *, phi: float, output: bool) -> torch.Tensor:
    """State of all groups, with or without an output."""
    of = Inputs(x, phi, 1.0, None, None, None, None)
    found = plan(of, groups, rule)
    assert found is not None
    x = dense(x, x, found.strides)
    y = torch.empty_strided(x.shape, found.strides, dtype=x.dtype) if output else None
    state = torch.full((found.arrangement.groups, len(problem.COLUMNS)), 77.0, dtype=torch.float64)
    nothing = (None,) * 5
    assert library.forward(found.encoded_spec, x, y, found.offsets, nothing, state)
    if not output:  # the entry that others use gives the same
        alone = cpu.statistics(of, groups, rule)
        assert alone is not None
        written = state != 77
        assert torch.equal(alone[written].nan_to_num(), state[written].nan_to_num())
    return state


@pytest.mark.parametrize("spread", ["rms", "mean_abs", "max_abs", "robust", None])
@pytest.mark.parametrize("dtype", slow_except([torch.float32, torch.bfloat16], FLOATS), ids=str)
def test_without_an_output(spread: str | None, dtype: torch.dtype) -> None:
    """The same numbers, whether an output is written or not."""
    rule = Rule(scaled=False) if spread is None else make_rule(spread, 1.5, 0.05)
    x = torch.randn(6, 5, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    last = x.contiguous(memory_format=torch.channels_last)
    segments = Segments(torch.tensor([0, 0, 0, 1, 3, 3]), 4)
    cases: list[tuple[torch.Tensor, Grouping]] = [
        (x, Axes((0, 2, 3))),
        (last, Axes((0, 2, 3))),
        (x, Axes((1, 2, 3))),
        (x.flatten(1), segments),
        (torch.randn(9, 5, 40, 40).to(dtype), Axes((0, 2, 3))),
    ]
    for phi in (1.0, 1.3, 1.5, 2.0, 3.0, math.inf):
        for values, groups in cases:
            with_output, alone = (state_of(values, groups, rule, phi=phi, output=output) for output in (True, False))
            same = (with_output == alone) | (with_output.isnan() & alone.isnan())
            written = ~((with_output == 77) | (alone == 77))  # numbers that this spread does not have
            close = torch.isclose(with_output, alone, rtol=1e-6, atol=1e-6)  # moments may be summed in another order
            assert (same | close | ~written).all()
            columns = [*range(problem.UNIT), *range(problem.MEAN, len(problem.COLUMNS))]
            assert written[:, columns].all() or rule.scaled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("members", [2, 3, 33, 300, 9000])
def test_certificates(dtype: torch.dtype, members: int) -> None:
    """The center is never further from the truth than the bound, and the bound is close to rounding."""
    rng = np.random.default_rng(members)
    x = hostile_groups(rng, 12 if members < 9000 else 2, members).astype(
        np.float64 if dtype == torch.float64 else np.float32
    )
    x = np.concatenate([x / np.abs(x).max(1, keepdims=True), rng.standard_normal((3, members)).astype(x.dtype)])
    eps = torch.finfo(dtype).eps
    for phi in (1.05, 1.2, 1.5, 1.75, 1.9, 2.0, 2.5, 4.0) if members < 9000 else (1.5,):
        truth = center_by_bisection(x, phi)[:, 0] if phi != 2 else x.astype(np.longdouble).mean(1)
        values = torch.from_numpy(x)
        for laid in (values, values.t().contiguous().t()):
            state = state_of(laid, Axes((1,)), Rule(scaled=False), phi=phi, output=False).numpy()
            error, bound = np.abs(state[:, problem.CENTER] - truth), state[:, problem.BOUND]
            assert (error <= bound + 2e-19 * np.abs(truth)).all(), f"φ={phi}"  # the oracle has its own rounding
            size = np.abs(x - truth[:, None]).mean(1)
            tight = 600 * eps / min(1, phi - 1) * np.abs(x - truth[:, None]).max(1) + 4 * eps * np.abs(truth)
            assert (bound <= tight).all(), f"φ={phi}: {(bound / size).max()}"
            sweeps = state[:, problem.SWEEPS]
            assert (sweeps == 0).all() if phi == 2 else (sweeps[-3:] >= 1).all()
            assert (state[:, problem.MASS] == members).all()
            assert (state[:, problem.BY] == 1).all()


def test_certificates_of_closed_forms() -> None:
    x = torch.tensor([[1.0, 2.0, 5.0, 7.0], [3.0, 3.0, 3.0, 3.0], [1.0, math.nan, 2.0, 0.0]])
    for laid in (x, x.t().contiguous().t()):
        for phi, center in ((1.0, 3.5), (math.inf, 4.0), (2.0, 3.75), (1.5, None)):
            state = state_of(laid, Axes((1,)), Rule(scaled=False), phi=phi, output=False)
            eps = torch.finfo(torch.float32).eps
            assert center is None or float(state[0, problem.CENTER]) == center
            assert float(state[1, problem.CENTER]) == 3.0
            assert float(state[1, problem.BOUND]) == pytest.approx(3 * eps)
            if phi in (1.0, math.inf):
                assert center is not None
                assert float(state[0, problem.BOUND]) == pytest.approx(center * eps)
            assert state[2, [problem.CENTER, problem.BOUND, problem.MEAN]].isnan().all()
            assert state[2, [problem.SWEEPS, problem.MASS, problem.BY]].tolist() == [0.0, 4.0, 1.0]


def test_an_empty_segment() -> None:
    state = state_of(torch.randn(4, 3), Segments(torch.tensor([0, 0, 2, 2]), 3), Rule(), phi=1.5, output=False)
    assert state[3:6, [problem.CENTER, problem.BOUND, problem.SWEEPS, problem.MASS]].eq(0).all()
    assert state[:, problem.BY].eq(1).all()


def test_a_spread_about_a_point() -> None:
    """Nothing removed but a shift: the spread about a given point."""
    x = torch.randn(5, 70, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    about = torch.tensor(0.4, dtype=torch.float64).reshape(1, 1)
    rule = make_rule("rms", 1.5, 0.0, centered=False)
    of = Inputs(x, 2.0, 1.0, -about, None, None, None)
    state = cpu.statistics(of, Axes((1,)), rule)
    assert state is not None
    torch.testing.assert_close(state[:, problem.SPREAD], (x - 0.4).square().mean(1).sqrt())
