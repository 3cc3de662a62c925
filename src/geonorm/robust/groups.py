"""Accuracy per group, where a sample may belong to several."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class GroupAccuracy(NamedTuple):
    """Accuracy of each group of samples.

    Attributes:
        average: accuracy over all samples.
        worst: accuracy of the worst group that has samples.
        per_group: accuracy of each group; NaN for one without samples.
        counts: samples in each group.
    """

    average: float
    worst: float
    per_group: Tensor
    counts: Tensor


def group_accuracy(correct: Tensor, groups: Tensor) -> GroupAccuracy:
    """Average and worst-group accuracy over groups that may overlap.

    Args:
        correct: boolean, one entry per sample.
        groups: boolean ``(samples, groups)``, membership; or one group number per sample.

    Examples:
        >>> import torch
        >>> from geonorm.robust import group_accuracy
        >>> found = group_accuracy(torch.tensor([True, True, False]), torch.tensor([[1, 1], [1, 0], [0, 1]]).bool())
        >>> found.worst, found.per_group
        (0.5, tensor([1.0000, 0.5000], dtype=torch.float64))
    """
    if correct.is_floating_point() or groups.is_floating_point():
        raise TypeError(f"expected booleans or group numbers (got {correct.dtype} and {groups.dtype})")
    correct = correct.bool()
    groups = torch.nn.functional.one_hot(groups.long()).bool() if groups.dim() == 1 else groups.bool()
    if correct.dim() != 1 or groups.dim() != 2 or len(correct) != len(groups):
        raise ValueError(
            "expected correct of shape (samples,) and groups of shape (samples, groups) "
            f"(got {tuple(correct.shape)} and {tuple(groups.shape)})"
        )
    if not len(correct):
        raise ValueError("expected at least one sample (got none)")
    inside = groups.double()
    counts = inside.sum(0)
    per_group = torch.where(counts > 0, (inside * correct.double()[:, None]).sum(0) / counts, math.nan)
    present = per_group[counts > 0]
    worst = float(present.min()) if len(present) else math.nan
    return GroupAccuracy(float(correct.double().mean()), worst, per_group, counts.long())
