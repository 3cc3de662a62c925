"""The final test of a trained model: clean, with noise, degraded or attacked, per group."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .. import robust
from ..surgery import recalibrate
from .batches import in_order
from .choices import ATTACKS, Evaluation
from .data import Split, Task, degrade
from .train import correct

_BATCH = 256


def evaluate(model: nn.Module, task: Task, how: Evaluation, seed: int) -> dict[str, Any]:
    """Accuracy of a model under one evaluation: right, of how many, and the worst group if there are groups.

    Args:
        model: as it was trained; it is not changed.
        task: its data.
        how: the evaluation.
        seed: of noise.
    """
    split = task.test
    if how.samples is not None:
        split = split.take(torch.arange(min(how.samples, len(split))))
    model = copy.deepcopy(model)
    if how.recalibrated:
        batches = [batch.inputs for batch in in_order(task.train, _BATCH)]
        recalibrate(model, batches, forward=lambda net, inputs: net(*inputs))
    right = correct(model, _changed(model, split, how, seed))
    found: dict[str, Any] = {"accuracy": float(right.double().mean()), "correct": int(right.sum()), "total": len(right)}
    if split.groups is not None:
        groups = robust.group_accuracy(right, split.groups)
        found |= {"worst_group": groups.worst, "groups": groups.per_group.tolist()}
    return found


def _changed(model: nn.Module, split: Split, how: Evaluation, seed: int) -> Split:
    """The samples as the model sees them in this evaluation."""
    if how.name == "clean":
        return split
    x = split.tensor()
    if how.name == "noise":
        return replace(
            split, x=robust.gaussian_noise(x, generator=torch.Generator().manual_seed(seed), **how.arguments)
        )
    if how.name in ATTACKS:
        torch.manual_seed(seed)
        parts = [
            ATTACKS[how.name](model, batch.inputs[0], batch.labels, **how.arguments)
            for batch in in_order(replace(split, x=x), _BATCH)
        ]
        return replace(split, x=torch.cat(parts))
    return degrade(split, how.name, seed=seed, **how.arguments)
