"""Wilson's interval: known values, and the equation it solves."""

import math
from statistics import NormalDist

import pytest
import torch

from geonorm.robust import accuracy, wilson


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # Newcombe (1998), Table I, method 3 without continuity correction; and the closed form z²/(n + z²) at the ends.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_known_values(correct: int, total: int, low: float, high: float) -> None:
    found = wilson(correct, total)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


@pytest.mark.parametrize(("correct", "total"), [(1, 2), (8, 10), (250, 10000), (9999, 10000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_ends_solve_the_score_equation(correct: int, total: int, confidence: float) -> None:
    found, z = wilson(correct, total, confidence), NormalDist().inv_cdf((1 + confidence) / 2)
    for p in (found.low, found.high):
        assert abs(found.share - p) == pytest.approx(z * math.sqrt(p * (1 - p) / total), rel=1e-9)
    assert 0 < found.low < found.share < found.high < 1


def test_ends_are_exact_at_none_and_all() -> None:
    assert wilson(0, 7).low == 0.0
    assert wilson(7, 7).high == 1.0


def test_scores_that_are_not_finite_are_wrong() -> None:
    """argmax points at NaN: counted by it alone, a broken model would be right for one class."""
    scores = torch.zeros(4, 3)
    scores[0, 0] = 1
    scores[1, 0] = math.nan
    scores[2, 2] = math.inf
    scores[3, 1] = 1
    assert accuracy(scores, torch.tensor([0, 0, 2, 1])).correct == 2


def test_errors() -> None:
    with pytest.raises(ValueError, match="total >= 1"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="correct <= total"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, 1.0)
    with pytest.raises(ValueError, match="labels of shape"):
        accuracy(torch.zeros(4, 3), torch.zeros(4, 3))


def test_labels_out_of_range_and_other_outputs_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"labels from 0 to 2.*got 0 to 7"):
        accuracy(torch.eye(3), torch.tensor([0, 7, 1]))
    with pytest.raises(ValueError, match="got -1 to 1"):
        accuracy(torch.eye(3), torch.tensor([0, -1, 1]))
    with pytest.raises(TypeError, match="tuple"):
        accuracy((torch.eye(3),), torch.tensor([0, 1, 2]))
