"""The few numbers of a record that are worth a curve in TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any


def curves(record: Mapping[str, Any]) -> dict[str, float]:
    """One number for each question about a training step; a question without an answer has no curve.

    The full record has one number for every weight and norm, which is too many to look at.

    ========================  =========================================================================================
    ``loss``                  as given to ``Monitor.step``
    ``effective_rate``        how fast weights turn: the median of η/‖w‖² over all weights
    ``over_equilibrium``      how far growth and weight decay are from balance: the median of ‖W‖ over its equilibrium
    ``gamma_gap``             how far γ² is from σ² at ‖W‖ = 1: the median over norms, from 0 to 1
    ``lag``                   how far running means are behind the batch, in standard deviations: the largest
    ``phi``                   the mean of all learned φ
    ``pulled``, ``not_finite``  samples that guards pulled or found not finite in this step
    ========================  =========================================================================================

    Examples:
        >>> from geonorm.analysis.growth.curves import curves
        >>> curves({"loss": 0.5, "weights": {}, "norms": {"1": {"pulled": 3, "not_finite": 0, "phi": None}}})
        {'geonorm/loss': 0.5, 'geonorm/pulled': 3.0, 'geonorm/not_finite': 0.0}
    """
    weights, norms = list(record["weights"].values()), list(record["norms"].values())
    balance = [
        entry["norm"] / entry["equilibrium"] for entry in weights if entry.get("norm") and entry.get("equilibrium")
    ]
    found = {
        "loss": record["loss"],
        "effective_rate": _over(median, weights, "effective_rate"),
        "over_equilibrium": median(balance) if balance else None,
        "gamma_gap": _over(median, norms, "gamma_share_unit"),
        "lag": _over(max, norms, "lag_mean"),
        "phi": _over(_mean, norms, "phi"),
        "pulled": _over(sum, norms, "pulled"),
        "not_finite": _over(sum, norms, "not_finite"),
    }
    return {f"geonorm/{name}": float(value) for name, value in found.items() if value is not None}


def _over(summary: Callable[[list[float]], float], entries: list[Mapping[str, Any]], key: str) -> float | None:
    values = [entry[key] for entry in entries if entry.get(key) is not None]
    return summary(values) if values else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
