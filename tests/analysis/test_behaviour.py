"""Outputs of a network are compared by prediction and by movement, and found in what people return."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from geonorm.analysis.behaviour import accuracy, answer_of, compare, labels_of


def test_answers_are_compared_by_prediction_and_by_movement() -> None:
    torch.manual_seed(0)
    one = torch.randn(200, 5)
    other = one.clone()
    other[:50] = other[:50].roll(1, 1)
    change = compare([one[:100], one[100:]], [other[:100], other[100:]])
    assert change is not None
    assert change.samples == 200
    assert change.predictions is not None
    assert change.predictions.share == pytest.approx(0.25)
    assert change.predictions.low < 0.25 < change.predictions.high
    same = compare([one], [one])
    assert same is not None
    assert (same.moved, same.predictions.correct) == (0.0, 0)
    numbers = compare([one[:, :1]], [one[:, :1] + one[:, :1].std()])
    assert numbers is not None
    assert numbers.predictions is None
    assert numbers.moved == pytest.approx(1.0, rel=0.02)
    assert compare([one], [None]) is None
    assert compare([one], [one[:, :3]]) is None
    broken = compare([one], [one.clone().fill_(math.nan)])
    assert broken is not None
    assert (broken.moved, broken.predictions.correct) == (math.inf, 200)


def test_answers_and_labels_are_found_in_what_people_use() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    assert torch.equal(answer_of({"loss": x.sum(), "logits": x}), x)
    assert torch.equal(answer_of((x, None)), x)
    assert answer_of(None) is None
    assert torch.equal(labels_of((x, y)), y)
    assert torch.equal(labels_of({"input": x, "labels": y}), y)
    assert labels_of((x, x)) is None
    assert labels_of(x) is None
    assert accuracy([nn.functional.one_hot(y).float()], [(x, y)]).share == 1
    assert accuracy([torch.randn(4, 2)], [(x, y)]) is None  # a label that has no score
