"""Accuracy with an interval that is valid at 0 and 1 too."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

from torch import Tensor


class Accuracy(NamedTuple):
    """Correct samples of a total, with Wilson's interval.

    Attributes:
        correct: samples classified correctly.
        total: samples.
        share: correct / total.
        low, high: ends of the interval.
    """

    correct: int
    total: int
    share: float
    low: float
    high: float


def wilson(correct: int, total: int, confidence: float = 0.95) -> Accuracy:
    """Wilson's interval for a proportion: all p that a test of p̂ = correct/total at this level does not reject.

        |p̂ − p| ≤ z √(p(1 − p)/n)   ⇔   p ∈ (p̂ + z²/2n ± z √(p̂(1 − p̂)/n + z²/4n²)) / (1 + z²/n)

    Args:
        correct: successes, from 0 to ``total``.
        total: trials, at least 1.
        confidence: of the interval, between 0 and 1.

    Examples:
        >>> from geonorm.robust import wilson
        >>> found = wilson(8, 10)
        >>> print(f"{found.share} from {found.low:.4f} to {found.high:.4f}")
        0.8 from 0.4902 to 0.9433
    """
    if not 0 <= correct <= total or total < 1:
        raise ValueError(f"expected 0 <= correct <= total and total >= 1 (got correct={correct}, total={total})")
    if not 0 < confidence < 1:
        raise ValueError(f"expected confidence between 0 and 1 (got {confidence})")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, squeezed = correct / total, z * z / total
    middle = share + squeezed / 2
    half = (squeezed * (share * (1 - share) + squeezed / 4)) ** 0.5
    # Without rounding error: exactly 0 if none is correct, exactly 1 if all are.
    low = 0.0 if correct == 0 else (middle - half) / (1 + squeezed)
    high = 1.0 if correct == total else (middle + half) / (1 + squeezed)
    return Accuracy(correct, total, share, low, high)


def accuracy(scores: Tensor, labels: Tensor) -> Accuracy:
    """How often the largest score is that of the label. Scores that are not finite count as wrong.

    Args:
        scores: ``(N, classes)``.
        labels: ``(N,)``.

    Examples:
        >>> import torch
        >>> from geonorm.robust import accuracy
        >>> accuracy(torch.eye(4), torch.tensor([0, 1, 2, 0])).correct
        3
    """
    return wilson(count_correct(scores, labels), len(labels))


def count_correct(scores: Tensor, labels: Tensor) -> int:
    """Samples whose largest score is that of the label. argmax picks NaN, which must not count."""
    check_scores(scores, labels)
    right = (scores.argmax(1) == labels.to(scores.device)) & scores.isfinite().all(1)
    return int(right.sum())


def check_scores(scores: Any, labels: Tensor) -> None:
    """Raise unless scores are ``(N, classes)`` and labels are valid classes."""
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"expected a model that returns scores of shape (N, classes) (got {type(scores).__name__}); wrap it in one "
            "that returns only the scores"
        )
    if scores.dim() != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"expected scores of shape (N, classes) and labels of shape (N,) "
            f"(got {tuple(scores.shape)} and {tuple(labels.shape)})"
        )
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < scores.shape[1]:
        raise ValueError(
            f"expected labels from 0 to {scores.shape[1] - 1}, for {scores.shape[1]} classes "
            f"(got {int(labels.min())} to {int(labels.max())})"
        )
