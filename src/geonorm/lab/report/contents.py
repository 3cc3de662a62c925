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
from .effect import Runs, runs_by_norm


@dataclass(frozen=True)
class Contents:
    """The contents of a report.

    Attributes:
        comparison: the comparison.
        baseline: the norm that the others are compared with.
        norms: in the order of the recipe.
        labels: of the columns; those with broken samples, degraded data or attacks come first.
        verdicts: of the columns.
        runs: of the columns, by norm.
        finished: the runs that are done.
        curves: figures of all runs for each epoch, by the key of the run.
    """

    comparison: Comparison
    baseline: str
    norms: list[str]
    labels: dict[Column, str]
    verdicts: dict[Column, Verdict]
    runs: dict[Column, dict[str, Runs]]
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
    """The cost of a training step, relative to the baseline's.

    Attributes:
        median, low, high: its time: the median over pairs of runs, and their range.
        memory: the bytes kept for the backward pass; NaN where they were not stored.
    """

    median: float
    low: float
    high: float
    memory: float


class Step(NamedTuple):
    """A training step of the baseline: milliseconds, and bytes kept for the backward pass; None where not stored."""

    milliseconds: float | None
    bytes_kept: int | None


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
    accuracies = comparison.accuracies()
    broken_first = sorted(accuracies, key=lambda column: (column.corruption == "clean", column.evaluation == "clean"))
    found = {column: accuracies[column] for column in broken_first}
    pairs = {pair for column in found.values() for values in column.values() for pair in values}
    shared = shared_by_folds(pairs)
    labels, verdicts = comparison.columns(), {column: judge(of, baseline, shared) for column, of in found.items()}
    return Contents(
        comparison,
        baseline,
        norms,
        {column: labels[column] for column in found},
        verdicts,
        {column: runs_by_norm(of, verdicts[column]) for column, of in found.items()},
        comparison.finished(),
        comparison.curves(),
    )


def costs(contents: Contents) -> dict[str, Cost]:
    """The cost of a training step of every norm, relative to the baseline.

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
            found[norm] = Cost(median(ratios), ratios[0], ratios[-1], _memory(contents, norm))
    return found


def step(contents: Contents) -> Step:
    """A training step of the baseline, in absolute terms."""
    times = []
    for run in contents.finished:
        first = _first_epoch(contents, run.key)
        if run.choices["norm"] == contents.baseline and "steps" in first and run.seconds:
            times.append(1000 * run.seconds / (run.choices["epochs"] * first["steps"]))
    kept = _bytes_kept(contents, contents.baseline)
    return Step(median(times) if times else None, kept)


def _memory(contents: Contents, norm: str) -> float:
    mine, reference = _bytes_kept(contents, norm), _bytes_kept(contents, contents.baseline)
    return mine / reference if mine and reference else math.nan


def _bytes_kept(contents: Contents, norm: str) -> int | None:
    """Of the first run that has it: all runs of a norm have the same shapes."""
    runs = [run.key for run in contents.finished if run.choices["norm"] == norm]
    return next((kept for key in runs if (kept := _first_epoch(contents, key).get("bytes_kept"))), None)


def _first_epoch(contents: Contents, key: str) -> dict[str, Any]:
    """The figures of the first epoch of a run."""
    return next(iter(contents.curves[key]), {})
