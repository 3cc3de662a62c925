"""Probes of POP-Norm's theory: noise and sharpness of the loss, what arrives at the layers, and what κ does to them.

All read a copy of the model in training mode, with batch statistics: the function that the optimizer sees. The samples
are the same after every epoch and under every norm.
"""

from __future__ import annotations

import copy
import math
from typing import Any

from torch import Tensor, nn

from ..analysis import activation_effect, curvature, kappa_slopes
from .data import Task

_SAMPLES = 64  # in the batch whose samples' gradients are taken one by one
_INPUTS = 1024  # for the condition of inputs, which must not have fewer patches than directions
_STEPS = 24  # products with the Hessian: its largest eigenvalue is certain to about a per cent by then


def sharpness(model: nn.Module, task: Task) -> dict[str, Any]:
    """Variance of the gradient, size of the gradient, Lipschitz constant, and by layer the condition of its inputs."""
    whole = curvature(*_read(model, task, _SAMPLES), where=_nothing, steps=_STEPS, tolerance=0.01)
    layers = curvature(*_read(model, task, _INPUTS), how="batches", hessian=False).blocks[1:]
    return {
        "variance": whole.blocks[0].variance,
        "gradient": whole.blocks[0].gradient,
        "lipschitz": whole.lipschitz,
        "condition": [math.nan if layer.condition is None else layer.condition for layer in layers],
    }


def arrival(model: nn.Module, task: Task) -> dict[str, Any]:
    """By layer: share of the mean in the square of its input, rms of its input, and the division that is passed on."""
    found = activation_effect(*_read(model, task, _INPUTS)).operations
    return {
        "mean_share": [one.mean_share for one in found],
        "rms": [one.rms for one in found],
        "division": [math.nan if one.division is None else one.division for one in found],
    }


def slopes(model: nn.Module, task: Task) -> dict[str, Any]:
    """By layer behind a POP-Norm: slopes of log λ_max and of log variance of its weight against log κ."""
    found = kappa_slopes(*_read(model, task, _SAMPLES), steps=_STEPS, tolerance=0.01).slopes
    return {
        "largest": [math.nan if one.largest is None else one.largest for one in found],
        "variance": [math.nan if one.variance is None else one.variance for one in found],
    }


def _nothing(name: str, module: nn.Module) -> bool:
    return False


def _read(model: nn.Module, task: Task, number: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    split = task.train.sample(number)
    return copy.deepcopy(model).train(), (split.tensor(), split.y)
