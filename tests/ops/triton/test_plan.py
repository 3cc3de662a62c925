"""Which normalizations have kernels. Whether a case is refused must not depend on the data: shapes alone are here."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from geonorm.ops import Axes, Inputs, Rule, Segments
from geonorm.ops.triton import plan as module
from geonorm.ops.triton.plan import plan

X = torch.empty(8, 4, 5, 5)
GROUPS = Axes((0, 2, 3))
CHANNEL = torch.empty(1, 4, 1, 1)
LEARNED = (1.2, 3.0, 0.1)


def of(x: torch.Tensor = X, phi: Any = 1.5, **others: Any) -> Inputs:
    return Inputs(x, phi, 1.0, None, CHANNEL, CHANNEL, None)._replace(**others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("power", [2.0, 1.0, math.inf, None])
@pytest.mark.parametrize("phi", [1.01, 1.5, 2.0, 4.0])
def test_supported(dtype: torch.dtype, power: float | None, phi: float) -> None:
    found = plan(of(X.to(dtype), phi), GROUPS, Rule(power=power))
    assert found is not None
    assert found.power == (phi != 2)
    assert found.root == (phi == 1.5)


@pytest.mark.parametrize("guard", [None, 3.0])
def test_the_guard_at_the_mean(guard: float | None) -> None:
    found = plan(of(phi=2.0), GROUPS, Rule(guard=guard))
    assert found is not None
    assert (found.rows is None) == (guard is None)
    assert found.positions == 25


@pytest.mark.parametrize(
    ("inputs", "rule"),
    [
        (of(X.double()), Rule()),
        (of(phi=1.0), Rule()),
        (of(phi=math.inf), Rule()),
        (of(phi=8.0), Rule()),
        (of(phi=torch.full((1, 4, 1, 1), 1.5)), Rule()),
        (of(phi=torch.zeros(1, 4, 1, 1)), Rule(learned=(1.0, 3.0, 0.0))),
        (of(phi=torch.zeros(1, 4, 1, 1)), Rule(learned=(1.2, 8.0, 0.0))),
        (of(weight=torch.ones_like(X)), Rule()),
        (of(), Rule(power=3.0)),
        (of(), Rule(sweeps=8)),
        (of(), Rule(scale_first=True)),
        (of(), Rule(power=None, spread_phi=5.0)),
        (of(), Rule(guard=3.0)),
        (of(phi=2.0), Rule(guard=3.0, power=None)),
        (of(alpha=torch.ones_like(X)), Rule()),
        (of(torch.empty(0, 4, 5, 5)), Rule()),
    ],
)
def test_refused(inputs: Inputs, rule: Rule) -> None:
    assert plan(inputs, GROUPS, rule) is None


NODES = torch.empty(8, 4)
INDEX = torch.tensor([0, 0, 2, 2, 0, 2, 2, 2])


def of_nodes(x: torch.Tensor = NODES, **others: Any) -> Inputs:
    return Inputs(x, 1.5, 1.0, None, None, None, None)._replace(**others)


@pytest.mark.parametrize(
    ("phi", "shape", "entries"),
    [(torch.zeros(4), (1, 4), 4), (torch.zeros(3, 1), (3, 4), 12), (torch.zeros(3, 4), (3, 4), 12), (1.5, (1, 1), 1)],
)
def test_segments(phi: Any, shape: tuple[int, ...], entries: int) -> None:
    """In any order: what it is must not be asked."""
    found = plan(of_nodes(phi=phi, alpha=torch.ones(4)), Segments(INDEX, 3), Rule(learned=LEARNED))
    assert found is not None
    assert found.segments == 3
    assert (found.layout.m, found.layout.G) == (8, 12)
    assert found.layout.count_shapes == (shape, (1, 4), (1, 1))
    assert found.layout.counts == (entries, 4, 1)
    assert (found.layout.PG, found.layout.JM) == (1, 1)


def test_features_of_segments_are_read_from_a_copy() -> None:
    found = plan(of_nodes(torch.empty(5, 4, 8).permute(2, 0, 1), gamma=torch.ones(4)), Segments(INDEX, 3), Rule())
    assert found is not None
    assert found.strides == (20, 4, 1)
    assert found.layout.PG == 20


@pytest.mark.parametrize(
    ("inputs", "groups"),
    [
        (of_nodes(alpha=torch.ones(8, 1)), Segments(INDEX, 3)),  # from row to row
        (of_nodes(gamma=torch.ones(8, 4)), Segments(INDEX, 3)),
        (of_nodes(weight=torch.ones(8, 4)), Segments(INDEX, 3)),
        (of_nodes(phi=torch.full((4,), 1.5)), Segments(INDEX, 3)),
        (of_nodes(), Segments(INDEX[:7], 3)),
        (of_nodes(torch.empty(0, 4)), Segments(INDEX[:0], 3)),
    ],
)
def test_segments_that_are_refused(inputs: Inputs, groups: Segments) -> None:
    assert plan(inputs, groups, Rule()) is None


def test_a_learned_phi() -> None:
    found = plan(of(phi=torch.zeros(1, 4, 1, 1)), GROUPS, Rule(learned=LEARNED))
    assert found is not None
    assert found.layout.counts[0] == 4


@pytest.mark.parametrize("x", [X[:, :, ::2], X[:1].expand(8, 4, 5, 5), X.permute(3, 1, 0, 2)])
def test_other_memory(x: torch.Tensor) -> None:
    """Read from a copy, or where it lies."""
    found = plan(of(x), GROUPS, Rule())
    assert found is not None
    assert math.prod(x.shape) == found.layout.m * found.layout.G


def test_numbers_are_those_of_the_kernels() -> None:
    """``kernels/state.py`` cannot be imported without triton; its numbers are read from the source."""
    source = (module.__file__.removesuffix("plan.py")) + "kernels/state.py"
    with open(source) as file:
        text = file.read()
    for name in ("NO_SPREAD", "RMS", "MEAN_ABS", "MAX_ABS", "ROBUST"):
        assert f"{name} = tl.constexpr({getattr(module, name)})" in text
