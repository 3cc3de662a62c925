"""Does a claim hold? Verdicts from paired differences, corrected for all claims of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from geonorm.lab.report.labels import probability
from geonorm.lab.statistics import LEVEL, Difference, difference, holm, shared_by_folds

from .results import Pair

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided at this scale"
OWN = "our question"  # instead of published figures, if no paper makes the claim


class Verdict(NamedTuple):
    """The verdict on one claim.

    Attributes:
        claim: in a sentence.
        published: its figures in the paper, or ``OWN``.
        ours: the same figures here.
        verdict: holds, does not hold, or undecided at this scale.
        why: the statistics behind it.
        p: of the test that decided; NaN if there was none.
    """

    claim: str
    published: str
    ours: str
    verdict: str
    why: str
    p: float = math.nan


class Answer(NamedTuple):
    """The last three parts of a verdict."""

    verdict: str
    why: str
    p: float = math.nan


def better(one: Mapping[Pair, float], other: Mapping[Pair, float]) -> Answer:
    """Whether one is higher than the other."""
    found = _difference(one, other)
    untested = ", no test" if found.number and math.isnan(found.p) else ""
    return Answer(_sign(found), _why(found) + untested, found.p)


def above(values: Mapping[Pair, float], bound: float) -> Answer:
    """Whether a figure is higher than a bound. If it is the same in all runs, no test is needed."""
    found = _difference(values, dict.fromkeys(values, bound))
    if found.number > 1 and math.isnan(found.p):
        return Answer(HOLDS if found.mean > 0 else FAILS, f"the same in {found.number} runs")
    return Answer(_sign(found), _why(found, "runs"), found.p)


def below(values: Mapping[Pair, float], bound: float) -> Answer:
    """Whether a figure is lower than a bound."""
    found = above(values, bound)
    return found._replace(verdict={HOLDS: FAILS, FAILS: HOLDS}.get(found.verdict, found.verdict))


def level(one: Mapping[Pair, float], other: Mapping[Pair, float], margin: float) -> Answer:
    """Whether two differ by less than a margin: the interval of their difference lies within it, or outside."""
    found = _difference(one, other)
    why = f"{_why(found)}; margin ±{margin:.3g}"
    if found.low > -margin and found.high < margin:
        return Answer(HOLDS, why)
    return Answer(FAILS if found.low > margin or found.high < -margin else UNDECIDED, why)


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts of a page with p values corrected for their number (Holm), and stated in ``why``."""
    together = holm([one.p for one in verdicts])
    tests = sum(not math.isnan(p) for p in together)
    found = []
    for one, p in zip(verdicts, together, strict=True):
        if math.isnan(p):
            found.append(one)
            continue
        said = f"{one.why}, {probability(one.p)}" + (f", {probability(p)} for {tests} tests" if tests > 1 else "")
        found.append(one._replace(verdict=one.verdict if p < LEVEL else UNDECIDED, why=said, p=p))
    return found


def _difference(one: Mapping[Pair, float], other: Mapping[Pair, float]) -> Difference:
    return difference(one, other, shared_by_folds(one))


def _sign(found: Difference) -> str:
    if not found.p < LEVEL:
        return UNDECIDED
    return HOLDS if found.mean > 0 else FAILS


def _why(found: Difference, counted: str = "pairs") -> str:
    if not found.number:
        return "nothing to compare yet"
    return f"difference {found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}], {found.number} {counted}"
