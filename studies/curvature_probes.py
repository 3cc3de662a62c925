"""Probes of POP-Norm's theory: noise and sharpness of the loss, the effect of activations, and the effect of κ.

All use a copy of the model in training mode, with batch statistics: the function that is optimized. The samples
are the same after every epoch and under every norm.
"""

from __future__ import annotations

import copy
import math
from typing import Any

from torch import Tensor, nn

from geonorm.analysis import activation_effect, curvature, kappa_slopes
from geonorm.lab.data import Task

_SAMPLES = 64  # in the batch for per-sample gradients
_INPUTS = 1024  # for the condition of inputs, which needs more patches than directions
_STEPS = 24  # products with the Hessian: enough to know its largest eigenvalue to about a per cent


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
    """For each layer: mean²/rms² of its input, rms of its input, and the division passed on."""
    found = activation_effect(*_read(model, task, _INPUTS)).operations
    return {
        "mean_share": [one.mean_share for one in found],
        "rms": [one.rms for one in found],
        "division": [math.nan if one.division is None else one.division for one in found],
    }


def slopes(model: nn.Module, task: Task) -> dict[str, Any]:
    """For each layer after a POP-Norm: slopes of log λ_max and of log variance of its weight against log κ."""
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
