"""Gradients over several processes are those of one."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Incoming, Inputs, Rule, choose
from helpers.thread_group import run_in_threads


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
