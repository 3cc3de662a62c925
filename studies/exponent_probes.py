"""Probes of AugNorm on graphs: training accuracy in evaluation mode, the range of φ, and what Newton's steps reach."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from geonorm.introspect.observe import state_restored
from geonorm.lab.batches import in_order
from geonorm.lab.data import Task
from geonorm.lab.devices import home_of, moved
from geonorm.lab.train import correct
from geonorm.nn import AugBatchNorm1d

from .models.newton import NewtonNorm, newton_center

_FLOAT16 = torch.finfo(torch.float16).eps
_LOOKED_AT = 512  # training samples
_SURE = 60  # halvings of an interval: more than float64 has digits


def accuracy_on_training(model: nn.Module, task: Task) -> float:
    """Accuracy on the training samples in evaluation mode: without dropout, and with running statistics."""
    return float(correct(model, task.train).double().mean())


def exponents(model: nn.Module, task: Task) -> dict[str, float] | None:
    """The lowest, mean and highest learned φ of all layers and channels; None where none is learned or one is NaN."""
    learned = [torch.as_tensor(module.phi).detach().flatten() for module in model.modules() if _learns(module)]
    phi = torch.cat(learned) if learned else torch.tensor([math.nan])
    if not phi.isfinite().all():
        return None
    return {"lowest": float(phi.min()), "mean": float(phi.mean()), "highest": float(phi.max())}


def _learns(module: nn.Module) -> bool:
    if isinstance(module, NewtonNorm):
        return isinstance(module.phi, nn.Parameter)
    return bool(getattr(module, "learn_phi", False))


def eight_steps(model: nn.Module, task: Task) -> dict[str, float]:
    """How far eight Newton steps from the mean end from the center, over the inputs of all AugNorms over the batch.

    ``missed`` is the share of channels that end further away than float16 can resolve, in standard deviations of the
    channel; ``median`` and ``largest`` are distances in the same unit. Everything in float64.
    """
    errors: list[Tensor] = []

    def look(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x, phi = inputs[0].double(), torch.as_tensor(layer.phi).double()
        spread = x.std(0)
        far = (newton_center(x, phi, [0]) - _center(x, phi)).abs().squeeze(0)
        errors.append(torch.where(spread > 0, far / spread, 0.0).nan_to_num(math.inf))

    with state_restored(model), torch.no_grad():
        model.train()
        for module in model.modules():
            if isinstance(module, AugBatchNorm1d):
                module.register_forward_pre_hook(look)
        for batch in in_order(task.train.sample(_LOOKED_AT), _LOOKED_AT):
            moved(batch, home_of(model)).scores(model)
    if not errors:
        return {}
    error = torch.cat(errors)
    missed = float((error > _FLOAT16).double().mean())
    return {"missed": missed, "median": float(error.median()), "largest": float(error.max())}


def _center(x: Tensor, phi: Tensor) -> Tensor:
    """The center of every channel by halving: slow, and sure."""
    low, high = x.amin(0, keepdim=True), x.amax(0, keepdim=True)
    for _ in range(_SURE):
        middle = (low + high) / 2
        r = x - middle
        is_below = (r.sign() * r.abs().pow(phi - 1)).sum(0, keepdim=True) > 0  # the center is above
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    return (low + high) / 2
