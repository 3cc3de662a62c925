"""The size of an effect: which norms failed, which came close to the best, and which lie between.

Tests say whether a difference is chance; this says whether it matters. The words of the report follow both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ..results import Pair
from ..statistics import Verdict

FAILED = 0.5  # a run with less than this fraction of the highest mean has failed
CLOSE = 1.0  # points: a smaller difference between means does not matter, even if it is certain


class Runs(NamedTuple):
    """The runs of one norm in one column.

    Attributes:
        accuracies: of the runs, by pair; runs that diverged are left out.
        failed: how many of them failed.
        diverged: how many have no accuracy.
        is_close: whether none failed and the mean comes close to the highest.
    """

    accuracies: Mapping[Pair, float]
    failed: int
    diverged: int
    is_close: bool

    @property
    def worst(self) -> float:
        """The lowest accuracy; NaN without runs."""
        return min(self.accuracies.values(), default=math.nan)


def runs_by_norm(column: Mapping[str, Mapping[Pair, float]], verdict: Verdict) -> dict[str, Runs]:
    """The runs of every norm that has any.

    Args:
        column: accuracies by norm and pair; NaN for a run that diverged.
        verdict: on the same column.
    """
    highest = max((found.mean for found in verdict.summaries.values() if found.number), default=math.nan)
    found = {}
    for norm, values in column.items():
        if not values:
            continue
        finite = {pair: value for pair, value in values.items() if math.isfinite(value)}
        failed = sum(value < FAILED * highest for value in finite.values())
        is_close = not failed and verdict.summaries[norm].mean >= highest - CLOSE
        found[norm] = Runs(finite, failed, len(values) - len(finite), is_close)
    return found


def is_level(verdict: Verdict, norm: str) -> bool:
    """Whether a norm is as good as the best for all that is known: close to it, and no test tells them apart."""
    if norm not in verdict.level_with_best or abs(verdict.to_best[norm].mean) > CLOSE:
        return False
    return not (verdict.best == verdict.baseline and verdict.to_baseline[norm].is_real)
