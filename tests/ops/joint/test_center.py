"""Centers over several processes are those of all values in one."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Incoming, Inputs, Rule, choose, problem
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


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_gradients_are_those_of_one_process(backend: str, weighted: bool) -> None:
    parts = [hostile("heavy tails", rank)[:, :3] for rank in range(2)]
    lengths = [len(part) for part in parts]
    generator = torch.Generator().manual_seed(3)
    x, g = torch.cat(parts), torch.randn(sum(lengths), 3, generator=generator, dtype=torch.float64)
    share = 0.1 + torch.rand(x.shape, generator=generator, dtype=torch.float64)
    alpha, shift, gamma, beta = (0.5 + torch.rand(1, 3, generator=generator, dtype=torch.float64) for _ in range(4))
    learned = torch.tensor([[1.3, 1.5, 2.5]], dtype=torch.float64)
    places = (slice(0, lengths[0]), slice(lengths[0], None))

    def gradients(groups: Axes, rows: slice, phi: float | Tensor, rule: Rule, asked: tuple[bool, ...]) -> list[Tensor]:
        of = Inputs(x[rows], phi, alpha, shift, gamma, beta, share[rows] if weighted else None)
        saved = choose.normalize(of, groups, rule).saved
        found = choose.normalize_backward(Incoming(g[rows]), of, groups, rule, saved, asked)
        return [part for part in found if part is not None]

    for power in (2.0, 1.0, math.inf, 3.0, None):
        for phi in (learned, 1.0, 2.0, math.inf):
            rule = Rule(power=power, phi_strictly_inside=isinstance(phi, Tensor), spread_floor=0.05)
            asked = (True, isinstance(phi, Tensor), True, True, True, True, weighted)
            with choose.using_backend(backend):
                here = functools.partial(gradients, phi=phi, rule=rule, asked=asked)
                one, two = run_in_threads((0,), 2, lambda groups, rank, here=here: here(groups, places[rank]))
                expected = gradients(Axes((0,)), slice(None), phi, rule, asked)
            for k, (a, b, whole) in enumerate(zip(one, two, expected, strict=True)):
                joined = torch.cat([a, b]) if whole.shape == x.shape else a + b
                message = f"power={power} phi={phi} gradient {k}: "
                torch.testing.assert_close(joined, whole, rtol=1e-7, atol=1e-9, msg=lambda m, n=message: n + m)
