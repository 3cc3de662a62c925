"""The contents of a report, gathered once from the store."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from ..recipe import OWN, Run
from ..results import Column, Comparison
from ..statistics import Summary, Verdict, judge, shared_by_folds
from ..store import Finished


@dataclass(frozen=True)
class Contents:
    """The contents of a report.

    Attributes:
        comparison: the comparison.
        baseline: the norm that the others are compared with.
        norms: in the order of the recipe.
        labels: of the columns.
        verdicts: of the columns.
        finished: the runs that are done.
        curves: figures of all runs for each epoch, by the key of the run.
    """

    comparison: Comparison
    baseline: str
    norms: list[str]
    labels: dict[Column, str]
    verdicts: dict[Column, Verdict]
    finished: list[Finished]
    curves: dict[str, list[dict[str, Any]]]

    def diverged(self) -> list[Run]:
        """Runs whose final loss or an accuracy is not finite."""
        lost = {
            run.key
            for run in self.finished
            if any(not math.isfinite(figures["accuracy"]) for figures in run.figures.values())
        }
        return [
            run
            for run in self.comparison.runs
            if run.key in lost or not math.isfinite((self.curves[run.key] or [{"loss": 0.0}])[-1]["loss"])
        ]

    def unfinished(self) -> list[Run]:
        """Runs of the comparison that are not done."""
        done = {run.key for run in self.finished}
        return [run for run in self.comparison.runs if run.key not in done]

    def seeds(self) -> list[int]:
        """The seeds, in the order of the recipe."""
        return list(dict.fromkeys(run["seed"] for run in self.comparison.runs))


class Cost(NamedTuple):
    """Training time of a norm as a multiple of the baseline's: the median over pairs of runs, and their range."""

    median: float
    low: float
    high: float


def clipped_interval(found: Summary) -> tuple[float, float]:
    """The confidence interval of a mean, clipped to 0 and 100 %, beyond which Student's interval may reach."""
    return (max(found.low, 0.0), min(found.high, 100.0)) if found.number > 1 else (math.nan, math.nan)


def gather(comparison: Comparison | Contents, baseline: str | None = None) -> Contents:
    """Read the results and judge every column; contents that are already gathered are returned as they are.

    Args:
        comparison: with at least one run.
        baseline: as in ``write``.
    """
    if isinstance(comparison, Contents):
        return comparison
    if not comparison.runs:
        raise ValueError("expected a comparison with runs (got none)")
    norms = comparison.norms()
    if baseline is None:
        baseline = next((norm for norm in ("bn", OWN) if norm in norms), norms[0])
    if baseline not in norms:
        raise ValueError(f"expected the baseline to be one of {', '.join(norms)} (got {baseline!r})")
    found = comparison.accuracies()
    pairs = {pair for column in found.values() for values in column.values() for pair in values}
    shared = shared_by_folds(pairs)
    return Contents(
        comparison,
        baseline,
        norms,
        comparison.columns(),
        {column: judge(values, baseline, shared) for column, values in found.items()},
        comparison.finished(),
        comparison.curves(),
    )


def costs(contents: Contents) -> dict[str, Cost]:
    """Time per training step of every norm, relative to the baseline.

    The runs of a pair take the same number of steps, so the ratio of their times is that of a step.
    """
    times: dict[str, dict[tuple[Any, ...], float]] = {}
    for run in contents.finished:
        about = run.choices
        place = (about["seed"], about["fold"], about["loss"], about["corruption"])
        if run.seconds:
            times.setdefault(about["norm"], {})[place] = run.seconds
    reference = times.get(contents.baseline, {})
    found = {}
    for norm in contents.norms:
        ratios = sorted(t / reference[place] for place, t in times.get(norm, {}).items() if place in reference)
        if ratios:
            found[norm] = Cost(median(ratios), ratios[0], ratios[-1])
    return found
