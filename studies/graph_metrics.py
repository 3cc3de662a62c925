"""Ways to make one number of the curves of ten folds, and the mean of the folds of each split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from .augnorm_graphs_plan import FOLDS, RENEWED
from .results import Pair, Record, accuracy

Metric = Callable[[list[Record]], dict[Pair, float]]


def best_common_epoch(records: list[Record]) -> dict[Pair, float]:
    """Each fold at the epoch where the mean over the folds of its split is highest: the metric of the paper's words."""
    found: dict[Pair, float] = {}
    for folds in _splits(records).values():
        sums = [sum(values) for values in zip(*[record.curve["accuracy"] for record in folds], strict=True)]
        best = sums.index(max(sums))
        found |= {record.pair: 100 * record.curve["accuracy"][best] for record in folds}
    return found


def per_fold_maxima(records: list[Record]) -> dict[Pair, float]:
    """Each fold at its own best epoch: the metric that the published figures resemble, and the most flattering."""
    return {record.pair: 100 * max(record.curve["accuracy"]) for record in records}


def last_epochs(records: list[Record]) -> dict[Pair, float]:
    """Each fold over its last quarter, 100 epochs of 400: nothing is chosen by looking at the test samples."""
    tails = {record.pair: record.curve["accuracy"][-max(1, len(record.curve["accuracy"]) // 4) :] for record in records}
    return {pair: 100 * fmean(values) for pair, values in tails.items()}


def new_statistics(records: list[Record]) -> dict[Pair, float]:
    """Each fold after the last epoch, with recomputed running statistics."""
    return {record.pair: accuracy(RENEWED)(record) for record in records}


def rise(curve: str) -> Metric:
    """The mean of an accuracy over all epochs: the sooner it rises, the higher."""
    return lambda records: {
        record.pair: 100 * fmean(record.curve[curve]) for record in records if curve in record.curve
    }


def top(curve: str) -> Metric:
    """Each fold at the epoch where the mean of an accuracy over the folds is highest."""

    def metric(records: list[Record]) -> dict[Pair, float]:
        shown = [
            record._replace(curve={"accuracy": record.curve[curve]}) for record in records if curve in record.curve
        ]
        return best_common_epoch(shown)

    return metric


def by_split(values: Mapping[Pair, float]) -> dict[Pair, float]:
    """The mean over the folds of every split that has them all."""
    splits: dict[int, list[float]] = {}
    for (seed, _), value in values.items():
        splits.setdefault(seed, []).append(value)
    return {(seed, None): fmean(found) for seed, found in splits.items() if len(found) == FOLDS}


def _splits(records: list[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for record in records:
        found.setdefault(record.choices["seed"], []).append(record)
    return found


BEST = "best epoch of the mean"
METRICS: dict[str, Metric] = {
    BEST: best_common_epoch,
    "best epoch of each fold": per_fold_maxima,
    "mean of the last quarter": last_epochs,
    "last epoch, new statistics": new_statistics,
}
