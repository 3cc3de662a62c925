"""Segments: rows in any order, none, one or many of them, and what is broken in one of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import geonorm
from geonorm.ops import Axes, Grouping, Incoming, Inputs, Rule, Segments, problem
from geonorm.ops import triton as kernels
from geonorm.ops.torch import normalize as on_torch
from geonorm.ops.triton import plan as plans

LEARNED = (1.2, 3.0, -0.4)
FEATURES = {"graphs": (2, 9), "none at the ends": (3,), "a large one": (3,), "one": (5,)}
SIZES = {
    "graphs": [23, 60, 1, 0, 31, 2, 45],
    "none at the ends": [0, 0, 40, 3, 0],
    "a large one": [5, 700, 7],
    "one": [50],
}


def index_of(sizes: list[int]) -> Tensor:
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def mixed(index: Tensor) -> Tensor:
    """The rows of every segment in their order, but between those of others: where each row of the sorted list lies."""
    return index[torch.randperm(len(index))].argsort(stable=True)


def run(of: Inputs, groups: Grouping, rule: Rule, g: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:
    """Output, rows and gradients of the kernels."""
    needs = tuple(isinstance(value, Tensor) for value in of)
    found = kernels.normalize(of, groups, rule)
    assert found is not None
    parts = kernels.normalize_backward(g, of, groups, rule, found.saved, needs)
    assert parts is not None
    return found.output, found.saved.groups, parts


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("phi", "power"), [(1.5, 2.0), ("learned", 2.0), (2.0, 2.0), (1.5, None)])
def test_sizes(name: str, phi: Any, power: float | None) -> None:
    """Against torch in float64. The floor under |r| keeps values next to the center from deciding."""
    index = index_of(SIZES[name])
    number, features = len(SIZES[name]), FEATURES[name]
    shape = (1, *features)
    x = torch.randn(len(index), *features) * 2 + 3
    learned = LEARNED if phi == "learned" else None
    exponent = torch.linspace(-0.5, 0.5, math.prod(shape)).reshape(shape) if learned else phi
    alpha, gamma, beta = torch.rand(features) + 0.5, torch.rand(features) + 0.5, torch.randn(features)
    of, groups = Inputs(x, exponent, alpha, torch.randn(features), gamma, beta, None), Segments(index, number)
    rule = Rule(power=power, grad_floor=0.02, learned=learned, phi_strictly_inside=learned is not None)
    wide = Inputs(*[value.double() if isinstance(value, Tensor) else value for value in of])
    needs = tuple(isinstance(value, Tensor) for value in of)
    g = torch.randn_like(x)
    y, _, parts = run(of, groups, rule, g)
    exact = on_torch.normalize(wide, groups, rule)
    expected = on_torch.normalize_backward(Incoming(g.double()), wide, groups, rule, exact.saved, needs)
    torch.testing.assert_close(y.double(), exact.output, rtol=3e-6, atol=3e-6)
    for field, part, other in zip(Inputs._fields, parts, expected, strict=True):
        assert (part is None) == (other is None), field
        if part is not None and other is not None:
            # |z| is rounded next to the center of a robust spread, where a value counts as much as it is near.
            limit = (1e-3 if power is None else 2e-5) * max(1e-3, float(other.abs().max()))
            assert float((part.double() - other).abs().max()) <= limit, field


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_in_any_order(dtype: torch.dtype) -> None:
    """Bit for bit what the sorted rows give."""
    index = index_of(SIZES["graphs"])
    x, g, place = torch.randn(len(index), 5).to(dtype), torch.randn(len(index), 5).to(dtype), mixed(index)
    of, rule = Inputs(x, 1.5, torch.rand(5), None, torch.rand(5), torch.rand(5), None), Rule(power=None)
    y, rows, (dx, *parts) = run(of, Segments(index, 7), rule, g)
    there, moved, by = (torch.empty_like(value) for value in (index, x, g))
    there[place], moved[place], by[place] = index, x, g
    assert not bool((there.diff() >= 0).all())
    y_2, rows_2, (dx_2, *parts_2) = run(of._replace(x=moved), Segments(there, 7), rule, by)
    assert dx is not None
    assert dx_2 is not None
    assert torch.equal(y_2[place], y)
    assert torch.equal(dx_2[place], dx)
    assert torch.equal(rows_2, rows)
    for one, two in zip(parts, parts_2, strict=True):
        assert one is two is None or torch.equal(one, two)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("power", [2.0, None])
def test_a_broken_feature_of_one_segment_breaks_no_other(bad: float, power: float | None) -> None:
    index = index_of(SIZES["graphs"])
    x, g = torch.randn(len(index), 5), torch.randn(len(index), 5)
    of, groups, rule = Inputs(x, 1.5, 1.0, None, None, None, None), Segments(index, 7), Rule(power=power)
    y, _, (dx, *_) = run(of, groups, rule, g)
    broken = x.clone()
    broken[30, 2] = bad
    y_2, rows, (dx_2, *_) = run(of._replace(x=broken), groups, rule, g)
    hit = (index == 1)[:, None] & (torch.arange(5) == 2)
    assert dx is not None
    assert dx_2 is not None
    assert bool(y_2[hit].isnan().all())
    assert torch.equal(y_2[~hit], y[~hit])
    assert torch.equal(dx_2[~hit], dx[~hit])
    assert rows[:, problem.CENTER].isnan().nonzero().flatten().tolist() == [1 * 5 + 2]


def test_rows_of_no_segment_come_out_as_nan() -> None:
    """A device cannot raise. The operators do on the CPU, so the kernels are called by themselves."""
    index = index_of([4, 0, 6])
    x, g = torch.randn(12, 3), torch.randn(12, 3)
    of, rule = Inputs(x[:10], 1.5, 1.0, None, None, None, None), Rule()
    y, rows, (dx, *_) = run(of, Segments(index, 3), rule, g[:10])
    wrong = torch.cat([index, torch.tensor([-1, 3])])
    y_2, rows_2, (dx_2, *_) = run(of._replace(x=x), Segments(wrong, 3), rule, g)
    assert dx is not None
    assert dx_2 is not None
    assert torch.equal(rows_2, rows)
    assert torch.equal(y_2[:10], y)
    assert torch.equal(dx_2[:10], dx)
    assert bool(y_2[10:].isnan().all())
    assert bool(dx_2[10:].isnan().all())


def test_offsets_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(SIZES["graphs"])
    x, g = torch.randn(len(index), 5), torch.randn(len(index), 5)
    of, groups, rule = Inputs(x, 1.5, torch.rand(5), None, torch.rand(5), None, None), Segments(index, 7), Rule()
    expected = run(of, groups, rule, g)
    real = plans._plan

    def big(*args: Any) -> Any:
        found = real(*args)
        return found._replace(layout=found.layout._replace(BIG=True))

    monkeypatch.setattr(plans, "_plan", big)
    found = run(of, groups, rule, g)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    for one, two in zip(found[2], expected[2], strict=True):
        assert one is two is None or torch.equal(one, two)


def test_statistics() -> None:
    """Center and spread alone; those of a segment without rows are 0."""
    index = index_of(SIZES["graphs"])
    x, groups = torch.randn(len(index), 5), Segments(index, 7)
    center, spread = kernels.center(x, 1.5, None, groups, None), kernels.spread(x, None, groups, Rule(centered=False))
    assert center is not None
    assert spread is not None
    for i, part in enumerate(x.double().split(SIZES["graphs"])):
        if len(part):
            expected = kernels.center(part.float(), 1.5, None, Axes((0,)), None)
            assert expected is not None
            assert bool(((center.center[i] - expected.center).abs() <= center.bound[i] + expected.bound).all())
            torch.testing.assert_close(spread[i].double(), part.square().mean(0).sqrt(), rtol=2e-6, atol=2e-6)
        else:
            assert torch.equal(center.center[i], torch.zeros(5))
            assert torch.equal(spread[i], torch.zeros(5))


def test_every_number_kept_is_written() -> None:
    """Nothing of the memory that was there before is among them."""
    torch.use_deterministic_algorithms(True)  # fresh memory is filled with NaN
    try:
        index = index_of(SIZES["graphs"])
        of = Inputs(torch.randn(len(index), 5), 1.5, torch.rand(5), None, torch.rand(5), None, None)
        for power in (2.0, 1.0, math.inf, None):
            y, rows, parts = run(of, Segments(index, 7), Rule(power=power), torch.randn_like(of.x))
            for value in (y, rows, *parts):
                assert value is None or not bool(value.isnan().any())
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_network_over_graphs_learns() -> None:
    torch.manual_seed(0)
    index = index_of([20, 30, 10, 25])
    layer, x = geonorm.AugGraphNorm(4, learn_phi=True), torch.randn(85, 4)
    scale = layer.mean_scale
    assert scale is not None
    target = torch.randn(85, 4)
    optimizer = torch.optim.SGD(layer.parameters(), 0.3)
    losses = []
    for _ in range(8):
        loss = (layer(x, index, 4) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
