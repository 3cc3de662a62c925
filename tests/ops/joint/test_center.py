"""Centers over several processes are those of all values in one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Inputs, Rule, choose, problem
from helpers.thread_group import ThreadGroup, run_in_threads


def hostile(kind: str, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(300 + 100 * rank, 6, generator=generator, dtype=torch.float64)
    if kind == "ties":
        return (2 * x).round()
    if kind == "rectified":
        return x.relu()
    if kind == "apart":
        return x * 10.0**rank + 100 * rank
    if kind == "heavy tails":
        return x / torch.rand(x.shape, generator=generator, dtype=torch.float64)
    if kind == "one value elsewhere":
        return x if rank else torch.full((1, 6), 1e6, dtype=torch.float64)
    if kind == "nothing here":
        return x[:0] if rank == 1 else x
    if kind == "equal":
        return torch.full((5, 6), 3.0, dtype=torch.float64)
    if kind == "large offset":
        return x + 1e8
    return x * 1e200  # wild


KINDS = (
    "ties",
    "rectified",
    "apart",
    "heavy tails",
    "one value elsewhere",
    "nothing here",
    "equal",
    "large offset",
    "wild",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_centers_of_hostile_data(kind: str, backend: str) -> None:
    parts = [hostile(kind, rank) for rank in range(3)]
    with choose.using_backend(backend):
        for dtype in (torch.float64,) if kind == "wild" else (torch.float64, torch.float32):
            for phi in (1.0, 1.1, 1.5, 2.0, 3.0, math.inf):
                for weighted in (False, True):
                    check_center([part.to(dtype) for part in parts], phi, weighted)


def check_center(parts: list[Tensor], phi: float, weighted: bool) -> None:
    """The same bits in every thread, and within the bounds of what one process finds."""
    whole = torch.cat(parts)
    share = torch.rand(whole.shape, generator=torch.Generator().manual_seed(5)).to(whole.dtype)
    share = share * (share > 0.2)
    shares = share.split([len(part) for part in parts])

    def center(groups: ThreadGroup, rank: int) -> tuple[Tensor, Tensor]:
        of = Inputs(parts[rank], phi, 1.0, None, None, None, shares[rank] if weighted else None)
        rows = choose.normalize(of, groups, Rule(eps=1e-5)).saved.groups
        return rows[:, problem.CENTER], rows[:, problem.BOUND]

    (found, bound), *others = run_in_threads((0,), len(parts), center)
    for other in others:
        assert torch.equal(found, other[0])
        assert torch.equal(bound, other[1])
    exact = choose.center(whole.double(), phi, share.double() if weighted else None, Axes((0,)), None)
    off, allowed = (found - exact.center[0]).abs(), bound + exact.bound[0] + 1e-300
    assert bool((off <= allowed).all()), (phi, weighted, whole.dtype, off, allowed)
    if phi == 1:
        assert torch.equal(found, exact.center[0].to(whole.dtype).double())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_value_spoils_its_group_everywhere(bad: float) -> None:
    for phi in (1.0, 1.5, 2.0, math.inf):

        def rows(groups: ThreadGroup, rank: int, phi: float = phi) -> Tensor:
            x = hostile("apart", rank)
            if rank == 2:
                x[3, 4] = bad
            return choose.normalize(Inputs(x, phi, 1.0, None, None, None, None), groups, Rule()).output

        for y in run_in_threads((0,), 3, rows):
            assert y[:, 4].isnan().all()
            assert y[:, :4].isfinite().all()
