"""A histogram of scores with growing bins and an edge at the cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

_PER_FACTOR = 6  # bins for every factor of two near the cut
_MOST = 60


@dataclass(frozen=True)
class Bin:
    """Scores from ``low`` to ``high``; those that are not finite count in the last one."""

    low: float
    high: float
    count: int


def score_counts(scores: Tensor, cut: float) -> list[Bin]:
    """Bins from the smallest to the largest score."""
    finite = scores[scores.isfinite()].double().clamp_min(cut / 64)
    low = float(finite.min()) if len(finite) else cut
    high = max(float(finite.max()) if len(finite) else cut, cut * 2)
    steps = math.log2(high / low)
    per = min(_PER_FACTOR, _MOST / steps)
    first = min(math.floor(math.log2(low / cut) * per), -1)
    last = math.ceil(math.log2(high / cut) * per)
    edges = [cut * 2 ** (k / per) for k in range(first, last + 1)]
    place = ((finite / cut).log2() * per).floor().clamp(first, last - 1)
    # A score of exactly the cut is not above it.
    place = place.where(finite != cut, place.new_tensor(-1.0))
    counts = [int((place == k).sum()) for k in range(first, last)]
    counts[-1] += int((~scores.isfinite()).sum())
    return [Bin(a, b, count) for a, b, count in zip(edges[:-1], edges[1:], counts, strict=True)]
