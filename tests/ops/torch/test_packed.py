"""Packed rows give what the general path gives, whatever the groups hold, and their certificate is one."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Incoming, Inputs, Rule, problem
from geonorm.ops.torch import normalize as on_torch
from geonorm.ops.torch import packed
from helpers.oracles import hostile_groups, interval_holds_center

DIMS = (0, 2, 3)


def channels(dtype: torch.dtype = torch.float64) -> Tensor:
    """(6, 12, 5, 7): ordinary channels, and one of each kind that needs the search."""
    x = torch.randn(6, 12, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 1] = 3.0
    x[:, 2] = 0.0
    x[:, 3] = (x[:, 3] - 1.28).relu()
    x[0, 4, 0, 0] = 1e6
    x[:, 5] = x[:, 5] * 0.05 + 4096
    x[:, 6] = (4 * x[:, 6]).round() / 4
    x[:, 7] *= 1e-7
    x[:, 8] = x[:, 8].exp()
    return x.to(dtype)


def inputs(x: Tensor, phi: float, alpha: float | Tensor = 1.0, shift: Tensor | None = None) -> Inputs:
    generator = torch.Generator().manual_seed(1)
    gamma, beta = torch.rand(2, 1, x.shape[1], 1, 1, generator=generator, dtype=torch.float64).to(x.dtype).add(0.5)
    return Inputs(x, phi, alpha, shift, gamma, beta, None)


def both_ways(of: Inputs, grads: Incoming, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """Output, statistics and gradients from packed rows, then from the general path."""
    groups, found = Axes(DIMS), []
    needs = (True, False, *(isinstance(value, Tensor) for value in of[2:]))
    assert packed.supports(of, groups, rule)
    for _ in range(2):
        y, saved, _ = on_torch.normalize(of, groups, rule)
        gradients = on_torch.normalize_backward(grads, of, groups, rule, saved, needs)
        found.append([y, *problem.statistics_of(saved.groups, of.x, groups), *[g for g in gradients if g is not None]])
        monkeypatch.setattr(packed, "supports", lambda *_: False)
    return found


@pytest.mark.parametrize("phi", [1.1, 1.5, 1.9])
@pytest.mark.parametrize("block", [1 << 18, 300])
@pytest.mark.parametrize("by_statistics", [False, True])
def test_the_same_as_the_general_path(
    phi: float, block: int, by_statistics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "_BLOCK", block)
    generator = torch.Generator().manual_seed(2)
    alpha, shift = torch.rand(2, 12, 1, 1, generator=generator, dtype=torch.float64)
    x = channels()
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in (x.shape, *[(1, 12, 1, 1)] * 2)]
    grads = Incoming(*parts) if by_statistics else Incoming(parts[0])
    rule = Rule(grad_floor=0.2 if by_statistics else 0.0)
    ours, general = both_ways(inputs(x, phi, alpha, shift), grads, rule, monkeypatch)
    for mine, other in zip(ours, general, strict=True):
        # Offsets of 4096 cost 4 digits of float64 and ties below φ = 2 magnify the rounding of a center in dx.
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)


def test_a_channel_that_is_not_finite_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x = channels()
    x[0, 9, 0, 0], x[0, 10, 0, 0], x[0, 11, 0, 0] = math.nan, math.inf, 1e200
    ours, general = both_ways(inputs(x, 1.5), Incoming(torch.ones_like(x)), Rule(), monkeypatch)
    for mine, other in zip(ours, general, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8, equal_nan=True)
    assert bool(ours[0][:, :9].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("phi", [1.05, 1.3, 1.5, 1.8])
def test_the_bound_holds_the_center(dtype: torch.dtype, phi: float) -> None:
    rng = np.random.default_rng(int(100 * phi))
    for members in (2, 3, 8, 33, 300, 20000):
        count = 50 if members < 1000 else 3
        rows = [hostile_groups(rng, count, members), rng.standard_normal((count, members)) * 0.1 + 50]
        x = torch.from_numpy(np.concatenate(rows)).to(dtype)
        saved = packed.normalize(Inputs(x, phi, 1.0, None, None, None, None), Axes((1,)), Rule()).saved.groups
        c, bound = (saved[:, [i]].numpy().astype(np.longdouble) for i in (problem.CENTER, problem.BOUND))
        inside = interval_holds_center(x.numpy(), np.ones_like(x.numpy()), phi, c, bound)
        assert inside.all(), f"{members} values: rows {np.flatnonzero(~inside)}"


@pytest.mark.parametrize("members", [2048, 131072])
def test_ordinary_groups_need_no_search(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(packed, "center", search)
    normal = torch.randn(4, members, generator=torch.Generator().manual_seed(3))
    for x in (normal, normal.relu(), normal.exp()):
        saved = packed.normalize(Inputs(x, 1.5, 1.0, None, None, None, None), Axes((1,)), Rule()).saved.groups
        assert saved[:, problem.BOUND].max() < 1e-5 * x.std(1).max()
