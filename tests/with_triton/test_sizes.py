"""Groups that are large by themselves, in one or several parts, with and without masks; and offsets of 64 bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Center, Incoming, Inputs, Rule, problem
from geonorm.ops import triton as kernels
from geonorm.ops.torch import center as torch_center
from geonorm.ops.torch import normalize as on_torch
from geonorm.ops.triton import measure, tiles
from geonorm.ops.triton import plan as plans

LEARNED = (1.2, 3.0, -0.4)
SHAPES = {
    "one part, even": (8, 2, 32, 32),
    "two parts, even": (16, 2, 32, 32),
    "parts that stick out": (9, 3, 31, 37),
}


def compare(x: Tensor, phi: Any, power: float | None, floor: float = 0.02) -> None:
    """With the torch backend in float64. The floor under |r| keeps values next to the center from deciding."""
    shape = (1, x.shape[1], *[1] * (x.dim() - 2))
    learned = LEARNED if phi == "learned" else None
    given = torch.linspace(-0.5, 0.5, x.shape[1]).reshape(shape) if learned else phi
    gamma, beta, alpha = torch.rand(shape) + 0.5, torch.randn(shape), torch.rand(shape) + 0.5
    of, groups = Inputs(x, given, alpha, None, gamma, beta, None), Axes((0, *range(2, x.dim())))
    rule = Rule(power=power, grad_floor=floor, learned=learned, phi_strictly_inside=learned is not None)
    wide = Inputs(*[value.double() if isinstance(value, Tensor) else value for value in of])
    needs = tuple(isinstance(value, Tensor) for value in of)
    found, exact = kernels.normalize(of, groups, rule), on_torch.normalize(wide, groups, rule)
    assert found is not None
    g = torch.randn_like(x)
    mine = kernels.normalize_backward(g, of, groups, rule, found.saved, needs)
    expected = on_torch.normalize_backward(Incoming(g.double()), wide, groups, rule, exact.saved, needs)
    assert mine is not None
    torch.testing.assert_close(found.output.double(), exact.output, rtol=3e-6, atol=3e-6)
    for name, part, other in zip(Inputs._fields, mine, expected, strict=True):
        if other is None:
            assert part is None, name
            continue
        assert part is not None, name
        # |z| is rounded next to the center of a robust spread, where a value counts as much as it is near.
        limit = (1e-3 if power is None else 2e-5) * max(1e-3, float(other.abs().max()))
        assert float((part.double() - other).abs().max()) <= limit, name


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["one part, even", "two parts, even", "parts that stick out"])
@pytest.mark.parametrize(("phi", "power"), [(1.5, 2.0), ("learned", 2.0), (2.0, 2.0), (1.5, None)])
def test_large_groups(name: str, phi: Any, power: float | None, channels_last: bool) -> None:
    x = torch.randn(SHAPES[name]) * 2 + 3
    assert x[:, 0].numel() >= measure.SMALL
    compare(x.contiguous(memory_format=torch.channels_last) if channels_last else x, phi, power)


def test_sums_of_several_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_MOST_PARTS", 2)
    monkeypatch.setattr(tiles, "_TILE", 256)
    compare(torch.randn(SHAPES["parts that stick out"]) + 1, 1.5, 2.0)


@pytest.mark.parametrize("in_parts", [False, True])
def test_offsets_of_64_bits(in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = plans._plan

    def big(*args: Any) -> Any:
        found = real(*args)
        return found._replace(layout=found.layout._replace(BIG=True))

    monkeypatch.setattr(plans, "_plan", big)
    if in_parts:
        monkeypatch.setattr(measure, "SMALL", 0)
    compare(torch.randn(6, 3, 5, 4), 1.5, 2.0)


@pytest.mark.parametrize("phi", [1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_center(phi: float, dims: tuple[int, ...]) -> None:
    x = torch.randn(40, 7)
    found, exact = (
        kernels.center(x, phi, None, Axes(dims), None),
        torch_center.center(x.double(), phi, None, Axes(dims)),
    )
    assert found is not None
    for name, mine, other in zip(Center._fields, found, exact, strict=True):
        assert mine.shape == other.shape, name
    assert bool(((found.center.double() - exact.center).abs() <= found.bound + exact.bound).all())
    torch.testing.assert_close(found.center.double(), exact.center, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("power", [2.0, 1.0, float("inf"), None])
def test_spread(power: float | None) -> None:
    z = torch.randn(40, 7)
    rule = Rule(power=power, centered=False)
    found = kernels.spread(z, None, Axes((0,)), rule)
    of = Inputs(z.double(), 2.0, 1.0, None, None, None, None)
    exact = on_torch.normalize(of, Axes((0,)), rule).saved.groups[:, problem.SPREAD]
    assert found is not None
    torch.testing.assert_close(found.flatten().double(), exact, rtol=2e-6, atol=2e-6)


def test_every_number_kept_is_written() -> None:
    """Nothing of the memory that was there before is among them."""
    torch.use_deterministic_algorithms(True)  # fresh memory is filled with NaN
    try:
        for power in (2.0, 1.0, float("inf"), None):
            for m in (40, measure.SMALL + 8):
                x = torch.randn(m, 2)
                found = kernels.normalize(Inputs(x, 1.5, 1.0, None, None, None, None), Axes((0,)), Rule(power=power))
                assert found is not None
                assert not bool(found.saved.groups.isnan().any())
                assert not bool(found.output.isnan().any())
    finally:
        torch.use_deterministic_algorithms(False)
