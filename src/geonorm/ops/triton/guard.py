"""The launches of the guard: moments of the samples, the verdict on them, moments of the channels after the pull."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..problem import Rule, verdict_size
from ..torch.guard import MAX_SAMPLES_FOR_CENTER, WEISZFELD_STEPS
from .measure import settle
from .parameters import Parameters
from .plan import Plan
from .tiles import blocks, power_of_two

MEAN_ROW, VAR_ROW = 3, 4  # of ``Judged.found``: rows of kernels/large.py


class Judged(NamedTuple):
    """The verdict on the samples as ``problem`` lays it out, what was found about the channels, values that count."""

    verdict: Tensor
    found: Tensor
    mass: Tensor


def measure(x: Tensor, p: Parameters, rule: Rule, found: Plan, counts: Tensor | None) -> tuple[Tensor, Tensor]:
    """The rows of a guarded batch, and the verdict. Updates the ``counts`` of guarded samples."""
    from .kernels import row_moments_kernel

    at, shape = found.rows, x.shape[:2]
    assert at is not None
    assert rule.guard is not None
    mean, deviation = x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)
    BM = min(1024, power_of_two(at.m))
    BG = min(1024 // BM, power_of_two(at.G)) if at.j_inner == 1 or at.m == 1 else min(16, power_of_two(at.G))
    row_moments_kernel[(blocks(at.G, BG),)](x, mean, deviation, **at.where(), BIG=at.BIG, BM=min(BM, 8192 // BG), BG=BG)
    judged = judge(mean, deviation, rule.guard, found.positions, counts)
    rows = settle(x, judged.found, judged.found, judged.mass, p, rule, found)
    return rows, judged.verdict


def judge(mean: Tensor, deviation: Tensor, k: float, positions: int, counts: Tensor | None) -> Judged:
    """The verdict from the moments of every sample, [samples, channels]; ``positions``: values behind each of them."""
    from .kernels import (
        FOUND_ROWS,
        center_kernel,
        combine_kernel,
        distances_kernel,
        medians_kernel,
        usable_kernel,
        verdict_kernel,
    )

    N, C = mean.shape
    S = min(N, MAX_SAMPLES_FOR_CENTER)
    usable = mean.new_empty(N, dtype=torch.int32)
    center, distance = mean.new_empty(C, dtype=torch.float64), mean.new_empty(N, dtype=torch.float64)
    scale, verdict = mean.new_empty(C), mean.new_empty(verdict_size(mean))
    found = mean.new_empty((FOUND_ROWS, C), dtype=torch.float64)
    mass = mean.new_empty(C, dtype=torch.float64)
    rows = {"BN": min(16, power_of_two(N)), "BC": min(64, power_of_two(C))}
    usable_kernel[(blocks(N, rows["BN"]),)](mean, usable, N, C, **rows)
    BC = min(4, power_of_two(C))
    medians_kernel[(blocks(C, BC),)](mean, deviation, usable, center, scale, N, C, S, BS=power_of_two(S), BC=BC)
    columns = {"BN": min(64, power_of_two(N)), "BC": min(16, power_of_two(C))}
    for _ in range(WEISZFELD_STEPS):
        distances_kernel[(blocks(S, rows["BN"]),)](mean, deviation, center, scale, distance, N, C, S, **rows)
        center_kernel[(blocks(C, columns["BC"]),)](mean, usable, distance, center, N, C, S, **columns)
    distances_kernel[(blocks(N, rows["BN"]),)](mean, deviation, center, scale, distance, N, C, N, **rows)
    whole = {"BN": min(1024, power_of_two(N)), "BC": min(1024, power_of_two(C))}
    verdict_kernel[(1,)](distance, usable, center, scale, verdict, counts, k, N, C, **whole)
    combine_kernel[(blocks(C, columns["BC"]),)](mean, deviation, verdict, found, mass, N, C, positions, **columns)
    return Judged(verdict, found, mass)
