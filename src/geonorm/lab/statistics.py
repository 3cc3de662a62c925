"""Is one norm better than another, or was it chance? Means, intervals, paired tests and verdicts.

Runs of two norms with the same seed (and fold) start from the same weights and get the same batches, so their
differences are compared pair by pair: Student's t-test on the differences. Several norms against one baseline are
several chances of a false alarm, so p values are corrected (Holm, A simple sequentially rejective multiple test
procedure, 1979): if no norm differs, the chance that any is called different stays at 5 % per column. The best norm is
selected among all, so its p values are corrected for all pairs of norms.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, TypeVar

from .extras import require

LEVEL = 0.05  # the chance of a false alarm that we accept, per column
_NO_SPREAD = 1e-9  # of the values: differences that vary by less are equal up to rounding
_P = TypeVar("_P", bound=Hashable)
_K = TypeVar("_K", bound=Hashable)


class Summary(NamedTuple):
    """A summary of several runs of one norm.

    Attributes:
        number: how many runs have a finite figure.
        lost: how many have none (NaN).
        mean: of the figures.
        deviation: their standard deviation; NaN for fewer than two.
        low, high: the 95 % confidence interval of the mean (Student t); NaN for fewer than two.
    """

    number: int
    lost: int
    mean: float
    deviation: float
    low: float
    high: float


class Difference(NamedTuple):
    """One norm minus another, pair by pair.

    Attributes:
        number: of pairs.
        mean: of the differences; NaN without pairs.
        low, high: its 95 % confidence interval; NaN for fewer than two pairs.
        p: probability of a mean this far from 0 by chance (two-sided paired t-test); NaN if no test is possible: fewer
            than two pairs, or the same difference in all of them. Corrected where it is one of several.
    """

    number: int
    mean: float
    low: float
    high: float
    p: float

    @property
    def is_real(self) -> bool:
        """Whether the difference is significant at the level of 5 %."""
        return self.p < LEVEL


@dataclass(frozen=True)
class Verdict:
    """The verdict on one column.

    Attributes:
        baseline: the norm that the others are compared with.
        summaries: by norm.
        to_baseline: the difference of every other norm to the baseline, with p corrected for their number.
        best: the norm with the highest mean, among those with the most runs and none lost; None if there is none.
        to_best: the difference of every other norm to the best, with p corrected for all pairs of norms.
    """

    baseline: str
    summaries: Mapping[str, Summary]
    to_baseline: Mapping[str, Difference]
    best: str | None
    to_best: Mapping[str, Difference]

    @property
    def beats_baseline(self) -> bool:
        """Whether the best norm is better than the baseline beyond chance."""
        gap = self.to_baseline.get(self.best or "")
        return gap is not None and gap.is_real and gap.mean > 0

    @property
    def level_with_best(self) -> list[str]:
        """Norms with a lower mean that are not distinguishable from the best, the highest first."""
        level = [norm for norm, gap in self.to_best.items() if not gap.is_real and self.summaries[norm].number]
        return sorted(set(level) - set(self.ahead), key=lambda norm: -self.summaries[norm].mean)

    @property
    def ahead(self) -> list[str]:
        """Norms with a higher mean than the best, but over fewer runs, which may be the lucky ones."""
        return [
            norm
            for norm, found in self.summaries.items()
            if self.best is not None and found.number and found.mean > self.summaries[self.best].mean
        ]

    @property
    def is_noise(self) -> bool:
        """Whether no norm is distinguishable from the baseline. Only otherwise is the best examined."""
        return not any(gap.is_real for gap in self.to_baseline.values())

    @property
    def is_tested(self) -> bool:
        """Whether any norm could be tested against the baseline."""
        return any(not math.isnan(gap.p) for gap in self.to_baseline.values())

    @property
    def pairs(self) -> int:
        """The number of pairs of runs with the baseline, for the norm that has most."""
        return max((gap.number for gap in self.to_baseline.values()), default=0)


def summarize(values: Iterable[float]) -> Summary:
    """Mean, standard deviation and confidence interval of some figures; NaNs are counted and left out.

    Examples:
        >>> from geonorm.lab.statistics import summarize
        >>> found = summarize([97.0, 98.0, 99.0])
        >>> found.mean, found.deviation, round(found.low, 2), round(found.high, 2)
        (98.0, 1.0, 95.52, 100.48)
    """
    values = list(values)
    finite = [value for value in values if math.isfinite(value)]
    lost = len(values) - len(finite)
    if not finite:
        return Summary(0, lost, math.nan, math.nan, math.nan, math.nan)
    mean = math.fsum(finite) / len(finite)
    if len(finite) < 2:
        return Summary(1, lost, mean, math.nan, math.nan, math.nan)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (len(finite) - 1))
    half = _reach(len(finite)) * deviation / math.sqrt(len(finite))
    return Summary(len(finite), lost, mean, deviation, mean - half, mean + half)


def difference(one: Mapping[_P, float], other: Mapping[_P, float], shared: float = 0.0) -> Difference:
    """One norm minus another over the pairs that both have.

    Args:
        one, other: figures by pair.
        shared: see ``shared_by_folds``; widens interval and test.

    Examples:
        >>> from geonorm.lab.statistics import difference
        >>> found = difference({0: 97.0, 1: 98.0, 2: 97.5}, {0: 96.0, 1: 96.9, 2: 96.6})
        >>> found.number, round(found.mean, 2), round(found.p, 4)
        (3, 1.0, 0.0033)
    """
    pairs = [(one[pair], other[pair]) for pair in one if pair in other]
    pairs = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    gaps = [a - b for a, b in pairs]
    found = summarize(gaps)
    if found.number < 2:
        return Difference(found.number, found.mean, math.nan, math.nan, math.nan)
    if max(gaps) - min(gaps) <= _NO_SPREAD * max(abs(value) for pair in pairs for value in pair):
        # Accuracies are counts, so with few seeds all differences may be the same by chance.
        p = math.nan if abs(found.mean) > _NO_SPREAD else 1.0
    else:
        t = found.mean / (found.deviation * math.sqrt(1 / found.number + shared))
        p = 2 * float(require("scipy.special", "scipy").stdtr(found.number - 1, -abs(t)))
    wider = math.sqrt(1 + shared * found.number)
    low, high = (found.mean + wider * (end - found.mean) for end in (found.low, found.high))
    return Difference(found.number, found.mean, low, high, p)


def shared_by_folds(pairs: Iterable[tuple[int, int | None]]) -> float:
    """Test samples per training sample, 1/(k − 1), where pairs (seed, fold) are k folds of the same samples; else 0.

    The trainings of folds have most samples in common, so their differences vary less than those on new samples
    would (Nadeau and Bengio, Inference for the generalization error, 2003).

    Examples:
        >>> from geonorm.lab.statistics import shared_by_folds
        >>> shared_by_folds([(0, 0), (0, 1), (0, 2)]), shared_by_folds([(0, None), (1, None)])
        (0.5, 0.0)
    """
    folds = len({fold for _, fold in pairs if fold is not None})
    return 1 / (folds - 1) if folds > 1 else 0.0


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for their number; NaNs stay and are not counted.

    Examples:
        >>> from geonorm.lab.statistics import holm
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted((p, i) for i, p in enumerate(ps) if not math.isnan(p))
    corrected, highest = list(ps), 0.0
    for rank, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        corrected[i] = highest
    return corrected


def judge(column: Mapping[str, Mapping[_P, float]], baseline: str, shared: float = 0.0) -> Verdict:
    """The verdict on the figures of one column.

    Args:
        column: figures by norm and pair; higher is better.
        baseline: one of the norms.
        shared: as in ``difference``.

    Examples:
        >>> from geonorm.lab.statistics import judge
        >>> found = judge({"bn": {0: 50.0, 1: 52.0, 2: 49.0}, "ln": {0: 97.0, 1: 98.0, 2: 97.0}}, "bn")
        >>> found.best, found.beats_baseline
        ('ln', True)
    """
    if baseline not in column:
        raise ValueError(f"expected the baseline to be one of {', '.join(column)} (got {baseline!r})")
    summaries = {norm: summarize(values.values()) for norm, values in column.items()}
    whole = [norm for norm, found in summaries.items() if found.number and not found.lost]
    most = max((summaries[norm].number for norm in whole), default=0)
    best = max(
        (norm for norm in whole if summaries[norm].number == most), key=lambda norm: summaries[norm].mean, default=None
    )
    to_baseline = {
        norm: difference(values, column[baseline], shared) for norm, values in column.items() if norm != baseline
    }
    to_best = {} if best is None else _to_best(column, best, shared)
    return Verdict(baseline, summaries, _corrected(to_baseline), best, to_best)


def _to_best(column: Mapping[str, Mapping[_P, float]], best: str, shared: float) -> dict[str, Difference]:
    """The differences of all others to the best norm, corrected for all pairs, because it was selected among them."""
    order = sorted(column, key=lambda norm: norm == best)  # last, so that it is subtracted from the others
    pairs = {frozenset(two): difference(column[two[0]], column[two[1]], shared) for two in combinations(order, 2)}
    found = _corrected(pairs)
    return {norm: found[frozenset((norm, best))] for norm in column if norm != best}


def _corrected(gaps: Mapping[_K, Difference]) -> dict[_K, Difference]:
    """The same differences with their p values corrected together."""
    corrected = holm([gap.p for gap in gaps.values()])
    return {key: gap._replace(p=p) for (key, gap), p in zip(gaps.items(), corrected, strict=True)}


@lru_cache
def _reach(number: int) -> float:
    """Half the width of the 95 % interval of a mean of this many values, in standard errors."""
    return float(require("scipy.special", "scipy").stdtrit(number - 1, 1 - LEVEL / 2))
