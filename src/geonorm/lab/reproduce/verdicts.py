"""Does a claim hold? From paired differences, and never more than they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ..report.phrases import probability
from ..statistics import LEVEL, Difference, difference
from .results import Pair

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided at this scale"


class Verdict(NamedTuple):
    """What became of one claim.

    Attributes:
        claim: in a sentence.
        published: the figures behind it.
        ours: the same figures, as they came out here.
        verdict: holds, does not hold, or undecided at this scale.
        why: the statistics behind it.
    """

    claim: str
    published: str
    ours: str
    verdict: str
    why: str


def better(one: Mapping[Pair, float], other: Mapping[Pair, float], least: float = 0.0) -> tuple[str, str]:
    """Whether one is higher than the other by more than ``least``: the verdict, and why."""
    found = difference({pair: value - least for pair, value in one.items()}, other)
    if not found.p < LEVEL:
        return UNDECIDED, _why(found, least)
    return (HOLDS if found.mean > 0 else FAILS), _why(found, least)


def above(values: Mapping[Pair, float], bound: float) -> tuple[str, str]:
    """Whether a figure is higher than a bound: the verdict, and why. One that is the same in all runs needs no test."""
    found = difference(values, dict.fromkeys(values, bound))
    same = found.number > 1 and math.isnan(found.p)
    if not same and not found.p < LEVEL:
        return UNDECIDED, _why(found)
    return (HOLDS if found.mean > 0 else FAILS), f"the same in {found.number} runs" if same else _why(found)


def below(values: Mapping[Pair, float], bound: float) -> tuple[str, str]:
    """Whether a figure is lower than a bound."""
    verdict, why = above(values, bound)
    return {HOLDS: FAILS, FAILS: HOLDS}.get(verdict, verdict), why


def level(one: Mapping[Pair, float], other: Mapping[Pair, float], margin: float) -> tuple[str, str]:
    """Whether two differ by less than a margin: the interval of their difference lies within it, or outside."""
    found = difference(one, other)
    why = f"{_why(found)}; margin ±{margin:.3g}"
    if found.low > -margin and found.high < margin:
        return HOLDS, why
    return (FAILS if found.low > margin or found.high < -margin else UNDECIDED), why


def _why(found: Difference, least: float = 0.0) -> str:
    mean, low, high = (value + least for value in (found.mean, found.low, found.high))
    return f"difference {mean:+.2f} [{low:+.2f}, {high:+.2f}], {found.number} pairs, {probability(found.p)}"
