"""Does a claim hold? Verdicts that can go both ways, from one-sided tests of paired differences.

For the claim that one norm is better there are two tests. It holds if the difference is above 0 beyond chance. It does
not hold if the difference is, beyond chance, smaller than the smallest one of interest, which the study states with its
reason. A difference of 0 can therefore be found, given enough seeds, and a claim stays undecided only if the
interval is too wide. At most one of the two answers is wrong, whatever the truth, so each test has the full 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from geonorm.lab.extras import require
from geonorm.lab.report.labels import probability
from geonorm.lab.statistics import LEVEL, holm, shared_by_folds, summarize

from .results import Pair

HOLDS, FAILS = "holds", "does not hold"
UNDECIDED = "undecided"  # the effect is too small to be seen in these runs
UNTESTED = "cannot be tested here"
PENDING = "not enough runs yet"
EXPLORATORY = "exploratory"  # a further figure on a claim that another one decides: shown, neither judged nor counted
OWN = "our question"  # instead of published figures, if no paper makes the claim
_NO_SPREAD = 1e-9  # of the values: differences that vary by less are equal up to rounding
_RUNS = "runs"  # that are compared with a bound and not with each other
_ENOUGH = 5  # runs with the same difference that are no chance: accuracies are counts


class Verdict(NamedTuple):
    """The verdict on one claim.

    Attributes:
        claim: in a sentence.
        published: its figures in the paper, or ``OWN``.
        ours: the same figures here.
        verdict: holds, does not hold, undecided, cannot be tested here, not enough runs yet, or exploratory.
        why: the statistics behind it.
        p: of the test that decided; NaN if there was none.
    """

    claim: str
    published: str
    ours: str
    verdict: str
    why: str
    p: float = math.nan

    @property
    def is_own(self) -> bool:
        """Whether the claim is our question and in no paper."""
        return self.published == OWN


class Answer(NamedTuple):
    """The last three parts of a verdict."""

    verdict: str
    why: str
    p: float = math.nan


class Gap(NamedTuple):
    """The mean of paired differences and its standard error.

    Attributes:
        number: of pairs.
        mean: of the differences; NaN without pairs.
        error: standard error of the mean; NaN for fewer than two pairs, 0 if all differences are the same.
        counted: what a pair is called.
        freedom: degrees of freedom of the error; NaN for the usual ones, one fewer than pairs.
    """

    number: int
    mean: float
    error: float
    counted: str = "pairs"
    freedom: float = math.nan

    def p_above(self, bound: float) -> float:
        """The probability of a mean at least this high if the true difference is at most the bound."""
        return self._tail(bound - self.mean)

    def p_below(self, bound: float) -> float:
        """The probability of a mean at least this low if the true difference is at least the bound."""
        return self._tail(self.mean - bound)

    def _tail(self, distance: float) -> float:
        if self.number < 2:
            return math.nan
        if self.error == 0:
            return 0.0 if distance < 0 else 1.0
        return float(require("scipy.special", "scipy").stdtr(self._freedom, distance / self.error))

    @property
    def _freedom(self) -> float:
        return self.number - 1 if math.isnan(self.freedom) else self.freedom

    def __str__(self) -> str:
        if not self.number:
            return "nothing to compare yet"
        said = f"difference{' from the bound' if self.counted == _RUNS else ''} {self.mean:+.2f}"
        if self.number < 2:
            return f"{said}, no second one"
        if self.error == 0:
            return f"{said} in all {self.number} {self.counted}"
        reach = float(require("scipy.special", "scipy").stdtrit(self._freedom, 1 - LEVEL)) * self.error
        interval = f"[{self.mean - reach:+.2f}, {self.mean + reach:+.2f}]"
        return f"{said} {interval}, {self.number} {self.counted}"


def gap(one: Mapping[Pair, float], other: Mapping[Pair, float]) -> Gap:
    """One minus the other, pair by pair. Over folds of the same samples the error is wider: ``shared_by_folds``."""
    pairs = [(one[pair], other[pair]) for pair in one if pair in other]
    pairs = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    found = summarize([a - b for a, b in pairs])
    largest = max((abs(value) for pair in pairs for value in pair), default=0.0)
    if found.number > 1 and found.deviation <= _NO_SPREAD * largest:
        return Gap(found.number, found.mean if abs(found.mean) > _NO_SPREAD * largest else 0.0, 0.0)
    wider = math.sqrt(1 / found.number + shared_by_folds(one)) if found.number else math.nan
    return Gap(found.number, found.mean, found.deviation * wider)


def pooled(gaps: Sequence[Gap]) -> Gap:
    """The mean of gaps that were measured independently, such as on several sets, each as often as it could be.

    Every gap has the same weight, whatever its number of pairs; degrees of freedom as in Welch's test.

    Examples:
        >>> from studies.verdicts import Gap, pooled
        >>> found = pooled([Gap(10, 1.0, 0.3), Gap(5, 2.0, 0.4)])
        >>> found.mean, round(found.error, 2), round(found.freedom, 1)
        (1.5, 0.25, 8.6)
    """
    if not gaps:
        return Gap(0, math.nan, math.nan)
    number, mean = sum(one.number for one in gaps), sum(one.mean for one in gaps) / len(gaps)
    squares = [(one.error / len(gaps)) ** 2 for one in gaps]
    spread = sum(square**2 / (one.number - 1) for square, one in zip(squares, gaps, strict=True) if square > 0)
    freedom = sum(squares) ** 2 / spread if spread else math.nan
    return Gap(number, mean, math.sqrt(sum(squares)), gaps[0].counted, freedom)


def better(one: Mapping[Pair, float], other: Mapping[Pair, float], least: float = 0.0) -> Answer:
    """Whether one is higher than the other: holds above 0; does not hold if it is not higher by ``least`` either."""
    return positive(gap(one, other), least)


def positive(found: Gap, least: float = 0.0) -> Answer:
    """``better`` for a gap, such as one that is pooled."""
    return _decided(found, found.p_above(0.0), found.p_below(least), _least(least))


def no_worse(one: Mapping[Pair, float], other: Mapping[Pair, float], margin: float) -> Answer:
    """Whether one is comparable to the other or higher: holds above −margin; does not hold below 0."""
    return not_negative(gap(one, other), margin)


def not_negative(found: Gap, margin: float) -> Answer:
    """``no_worse`` for a gap, such as one that is pooled."""
    return _decided(found, found.p_above(-margin), found.p_below(0.0), f"margin −{margin:g}")


def level(one: Mapping[Pair, float], other: Mapping[Pair, float], margin: float) -> Answer:
    """Whether two differ by less than a margin: holds inside, does not hold outside."""
    found = gap(one, other)
    inside = max(found.p_above(-margin), found.p_below(margin))
    outside = min(found.p_above(margin), found.p_below(-margin))
    return _decided(found, inside, outside, f"margin ±{margin:.3g}")


def above(values: Mapping[Pair, float], bound: float, least: float = 0.0) -> Answer:
    """Whether a figure is higher than a bound; does not hold if it is not higher by ``least`` either."""
    found = gap(values, dict.fromkeys(values, bound))._replace(counted=_RUNS)
    return _decided(found, found.p_above(0.0), found.p_below(least), _least(least))


def below(values: Mapping[Pair, float], bound: float, least: float = 0.0) -> Answer:
    """Whether a figure is lower than a bound, such as one of a theory; does not hold if not by ``least`` either."""
    found = gap(values, dict.fromkeys(values, bound))._replace(counted=_RUNS)
    return _decided(found, found.p_below(0.0), found.p_above(-least), _least(least))


def explored(answer: Answer) -> Answer:
    """The same figures, without a verdict."""
    return Answer(EXPLORATORY, answer.why)


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts of a page with p values corrected (Holm): those of the paper's claims and of our questions apart."""
    found = list(verdicts)
    for is_own in (False, True):
        places = [i for i, one in enumerate(found) if one.is_own == is_own]
        together = holm([found[i].p for i in places])
        tests = sum(not math.isnan(p) for p in together)
        for i, p in zip(places, together, strict=True):
            if not math.isnan(p):
                found[i] = _after_correction(found[i], p, tests)
    return found


def _after_correction(one: Verdict, p: float, tests: int) -> Verdict:
    said = f"{one.why}, {probability(one.p)}" + (f", {probability(p)} for {tests} tests" if tests > 1 else "")
    return one._replace(verdict=one.verdict if p < LEVEL else UNDECIDED, why=said, p=p)


def _least(least: float) -> str:
    return f"least of interest {least:g}" if least else ""


def _decided(found: Gap, holds: float, fails: float, margin: str) -> Answer:
    """The answer from the p values of both tests. A difference may pass both: it is there, and below the margin."""
    why = f"{found}; {margin}" if margin else str(found)
    if math.isnan(holds):
        return Answer(PENDING, why)
    if found.error == 0:  # no spread to test with
        enough = found.number >= _ENOUGH
        return Answer(HOLDS if enough and holds < LEVEL else FAILS if enough and fails < LEVEL else UNDECIDED, why)
    if holds < LEVEL:
        return Answer(HOLDS, why, holds)
    return Answer(FAILS if fails < LEVEL else UNDECIDED, why, min(holds, fails))
