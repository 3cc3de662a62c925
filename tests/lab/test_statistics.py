"""The statistics: against scipy, against formulas by hand, and against chance itself."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from scipy import stats

from geonorm.lab.statistics import Difference, Verdict, difference, holm, judge, summarize

BN = [97.2, 98.1, 97.8, 97.5, 98.0]
LN = [98.0, 98.3, 98.4, 97.9, 98.2]


def paired(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def test_summary_by_hand() -> None:
    """Mean 97.72; squares of 0.52, 0.38, 0.08, 0.22, 0.28 sum to 0.548; t(4) reaches 2.776445."""
    found = summarize(BN)
    deviation = math.sqrt(0.548 / 4)
    assert found.number == 5
    assert found.mean == pytest.approx(97.72)
    assert found.deviation == pytest.approx(deviation)
    assert found.high - found.mean == pytest.approx(2.776445 * deviation / math.sqrt(5), rel=1e-6)
    assert found.low + found.high == pytest.approx(2 * 97.72)


def test_summary_is_that_of_scipy() -> None:
    found = summarize(LN)
    interval = stats.ttest_1samp(LN, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_difference_by_hand() -> None:
    """0.8, 0.2, 0.6, 0.4, 0.2: mean 0.44, deviation √(0.272/4), t = 3.772968, p = 0.01955."""
    found = difference(paired(LN), paired(BN))
    assert found.mean == pytest.approx(0.44)
    assert 0.44 / (math.sqrt(0.272 / 4) / math.sqrt(5)) == pytest.approx(3.772968, rel=1e-6)
    assert found.p == pytest.approx(0.01955, abs=1e-5)


@pytest.mark.parametrize("number", [2, 3, 5, 30])
def test_difference_is_the_paired_test_of_scipy(number: int) -> None:
    chance = random.Random(number)
    one = [chance.gauss(90, 2) for _ in range(number)]
    other = [value + chance.gauss(0.3, 1) for value in one]
    found, expected = difference(paired(one), paired(other)), stats.ttest_rel(one, other)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_only_shared_pairs_count() -> None:
    one = {0: 97.0, 1: 98.0, 2: math.nan, 3: 99.0, 7: 1.0}
    other = {3: 98.5, 1: 97.0, 0: 96.8, 2: 97.0}
    found = difference(one, other)
    assert found.number == 3
    assert found.p == pytest.approx(stats.ttest_rel([97.0, 98.0, 99.0], [96.8, 97.0, 98.5]).pvalue)


def test_where_no_test_is_possible() -> None:
    nothing, one_pair = difference({}, {0: 1.0}), difference({0: 97.0}, {0: 95.0})
    assert (nothing.number, one_pair.number) == (0, 1)
    assert one_pair.mean == 2.0
    for found in (nothing, one_pair):
        assert math.isnan(found.p)
        assert not found.is_real
    assert difference(paired(BN), paired(BN)) == Difference(5, 0.0, 0.0, 0.0, 1.0)
    same = difference(paired([97.1, 98.3, 96.7]), paired([97.0, 98.2, 96.6]))  # 0.1 each, up to rounding
    assert math.isnan(same.p)
    assert not same.is_real


def test_holm() -> None:
    """By hand: sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    with_nan = holm([0.02, math.nan, 0.03])
    assert with_nan[0] == pytest.approx(0.04)
    assert math.isnan(with_nan[1])
    assert with_nan[2] == pytest.approx(0.04)
    assert holm([]) == []


def test_verdict_on_a_clear_column() -> None:
    higher, level = [value + 20 for value in LN], [value + 20.2 for value in BN]
    found = judge({"bn": paired(BN), "ln": paired(higher), "median": paired(level)}, "bn")
    assert found.best == "ln"
    assert found.beats_baseline
    assert not found.is_noise
    assert found.level_with_best == ["median"]  # 0.24 points below, and 0.6 to 0.2 points apart: p > 0.05
    assert not found.leads


def test_a_norm_that_lost_runs_is_not_the_best() -> None:
    found = judge({"bn": paired(BN), "ln": {0: 99.0, 1: 99.2, 2: math.nan}}, "bn")
    assert found.summaries["ln"].lost == 1
    assert found.best == "bn"
    assert found.level_with_best == []
    assert found.ahead == ["ln"]
    assert not found.leads


def test_nothing_finished() -> None:
    found = judge({"bn": {}, "ln": {0: math.nan}}, "bn")
    assert found.best is None
    assert found.is_noise
    assert not found.beats_baseline
    assert not found.leads


def test_one_seed_declares_nothing() -> None:
    found = judge({"bn": {0: 10.0}, "ln": {0: 99.0}}, "bn")
    assert found.best == "ln"
    assert not found.beats_baseline
    assert not found.leads


def test_an_unknown_baseline() -> None:
    with pytest.raises(ValueError, match=r"one of bn, ln \(got 'x'\)"):
        judge({"bn": {}, "ln": {}}, "x")


NORMS = [f"norm{i}" for i in range(8)]
TABLES = 2000
# Twice the standard error of a rate of 5 % over so many tables: 5 % + 0.97 %.
ALLOWED = 0.05 + 2 * math.sqrt(0.05 * 0.95 / TABLES)


def normal(chance: random.Random) -> float:
    return chance.gauss(97, 0.5)


def counted(chance: random.Random) -> float:
    """Right answers among 360 at 97.5 %: few different values, ties often."""
    return sum(chance.random() < 0.025 for _ in range(360)) * -100 / 360 + 100


def rates(draw: Callable[[random.Random], float], seeds: int) -> tuple[float, float, float]:
    """How often, on tables of noise: a winner over the baseline, any difference to it, a norm ahead of all others."""
    chance = random.Random(0)
    found: list[Verdict] = []
    shared = draw is normal  # what a seed does to all norms alike; the test must not be fooled by it
    for _ in range(TABLES):
        lift = [chance.gauss(0, 1) if shared else 0.0 for _ in range(seeds)]
        column = {norm: {seed: draw(chance) + lift[seed] for seed in range(seeds)} for norm in NORMS}
        found.append(judge(column, NORMS[0]))
    differs = [any(gap.is_real for gap in verdict.to_baseline.values()) for verdict in found]
    wins, leads = [v.beats_baseline for v in found], [v.leads for v in found]
    return sum(wins) / TABLES, sum(differs) / TABLES, sum(leads) / TABLES


SLOW = [(normal, 2), (normal, 3), (counted, 2), (counted, 3), (counted, 5)]


@pytest.mark.parametrize(
    ("draw", "seeds"), [(normal, 5), *[pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]]
)
def test_noise_has_no_winner(draw: Callable[[random.Random], float], seeds: int) -> None:
    """Measured: a winner in 0.0 to 1.6 % of the tables, any difference in 0.0 to 5.4 %, a leader in none."""
    wins, differs, leads = rates(draw, seeds)
    assert wins <= differs <= ALLOWED
    assert leads <= 0.01
    assert differs > 0.01 or draw is counted  # the test itself is alive


def test_a_difference_of_five_deviations_is_found() -> None:
    """One norm of eight is better by five standard deviations, with five seeds: found in 96 % of the tables."""
    chance = random.Random(1)
    found = []
    for _ in range(300):
        column = {norm: {seed: chance.gauss(90, 0.5) for seed in range(5)} for norm in NORMS}
        column["norm5"] = {seed: value + 2.5 for seed, value in column["norm5"].items()}
        found.append(judge(column, NORMS[0]))
    assert sum(verdict.beats_baseline and verdict.best == "norm5" for verdict in found) >= 0.9 * len(found)
