"""The size of an effect: failed, close to the best, or between."""

from __future__ import annotations

import math

from geonorm.lab.report.effect import is_level, runs_by_norm
from geonorm.lab.results import Pair
from geonorm.lab.statistics import judge


def column(**figures: list[float]) -> dict[str, dict[Pair, float]]:
    return {norm: {Pair(seed, None): value for seed, value in enumerate(of)} for norm, of in figures.items()}


def test_failed_close_and_between() -> None:
    figures = column(bn=[10.0, 48.9, 49.1], ln=[98.0, 98.2, 98.1], gn=[90.0, 91.0, 89.0], pop=[math.nan] * 3, none=[])
    found = runs_by_norm(figures, judge(figures, "bn"))
    assert {norm: one.failed for norm, one in found.items()} == {"bn": 2, "ln": 0, "gn": 0, "pop": 0}
    assert {norm: one.diverged for norm, one in found.items()} == {"bn": 0, "ln": 0, "gn": 0, "pop": 3}
    assert [norm for norm, one in found.items() if one.is_close] == ["ln"]
    assert found["bn"].worst == 10.0
    assert math.isnan(found["pop"].worst)


def test_a_norm_with_a_failed_run_is_not_close_whatever_its_mean() -> None:
    figures = column(bn=[99.0] * 99 + [10.0], ln=[99.0] * 100)
    assert not runs_by_norm(figures, judge(figures, "ln"))["bn"].is_close


def test_level_is_close_and_not_told_apart() -> None:
    varied = column(
        bn=[50.0, 51.0, 50.0, 51.0, 50.0], ln=[97.0, 98.0, 97.5, 97.2, 97.9], gn=[97.3, 97.6, 97.6, 97.4, 97.5]
    )
    varied |= column(pop=[20.0, 97.0, 90.0, 97.0, 40.0])
    verdict = judge(varied, "bn")
    assert verdict.best == "ln"
    assert "pop" in verdict.level_with_best, "the test alone does not tell thirty points from chance"
    assert [norm for norm in varied if is_level(verdict, norm)] == ["gn"]


def test_a_norm_that_is_worse_than_the_best_baseline_is_not_level_with_it() -> None:
    """The test against the baseline is corrected for fewer pairs than that against the best."""
    figures = column(bn=[98.2, 98.0, 98.3, 98.1, 98.2, 98.0], ln=[97.9, 97.8, 97.8, 97.9, 97.8, 97.8])
    verdict = judge(figures, "bn")
    assert verdict.best == "bn"
    assert verdict.to_baseline["ln"].is_real
    assert not is_level(verdict, "ln")
