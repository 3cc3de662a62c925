"""Measurements inside the model after every epoch, in addition to loss and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from geonorm.analysis.growth.norms import NormHook, norm_watches
from geonorm.introspect.layouts import is_norm
from geonorm.introspect.observe import measure_batches, state_restored
from geonorm.introspect.scale_parts import dots, parts_by_table
from geonorm.lab.batches import in_order
from geonorm.lab.data import Task
from geonorm.lab.devices import home_of, moved
from geonorm.lab.train import correct
from geonorm.robust import group_accuracy

from .curvature_probes import arrival, sharpness, slopes
from .exponent_probes import accuracy_on_training, eight_steps, exponents
from .theorem_probes import descent, norm_steps

_LOOKED_AT = 512  # training samples
_GAPS = ("gamma_gap", "gamma_share", "beta_gap", "gamma_gap_unit", "gamma_share_unit", "beta_gap_unit")

Probe = Callable[[nn.Module, Task], Any]


def weight_norms(model: nn.Module, task: Task) -> dict[str, float]:
    """The length of every weight of a convolution or linear layer, by name."""
    return {
        name: float(parameter.detach().norm())
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and not is_norm(model.get_submodule(name.rpartition(".")[0]))
    }


def invariant_lengths(model: nn.Module, task: Task) -> dict[str, list[float]]:
    """For every scale-invariant weight, in the order of the network: its length, and that of one of its parts.

    A part is a row, a group of rows, or the whole: the vector w whose effective rate is η/‖w‖². Of several parts, the
    median.
    """
    with state_restored(model), torch.no_grad():
        model.train()  # with batch statistics
        found = []
        for part in parts_by_table(model):
            members = part.members(model)
            tensors, dims = [tensor.double() for tensor, _ in members], [dim for _, dim in members]
            found.append(dots(tensors, tensors, dims, part.number))
    return {
        "whole": [float(squares.sum().sqrt()) for squares in found],
        "part": [float(squares.median().sqrt()) for squares in found],
    }


def moments(model: nn.Module, task: Task) -> dict[str, list[float | None]]:
    """Gaps between (γ², β) of every batch norm and the moments (σ², μ) of its input, in the order of the network.

    As in ``geonorm.analysis.Monitor``: means over channels of |γ² − σ²|, of |γ² − σ²|/(γ² + σ²), and of |β − μ|;
    then the same with the rows of the weight before the norm at length 1. ``beta_share`` is |β − μ|/√(γ² + σ²).
    Measured on some training samples.
    """
    watches = [watch for watch in norm_watches(model) if watch.has_moments]
    shares: dict[nn.Module, float] = {}

    def keep_share(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shares[norm] = _beta_share(norm, inputs[0])

    with state_restored(model), torch.no_grad():
        measure_batches(model)
        for watch in watches:
            watch.module.register_forward_pre_hook(NormHook(watch), with_kwargs=True)
            watch.module.register_forward_pre_hook(keep_share)
        for batch in in_order(task.train.sample(_LOOKED_AT), _LOOKED_AT):
            moved(batch, home_of(model)).scores(model)
    records = [watch.record() for watch in watches]
    found = {name: [record[name] for record in records] for name in _GAPS}
    return found | {"beta_share": [shares[watch.module] for watch in watches]}


def _beta_share(norm: nn.Module, x: Tensor) -> float:
    var, mean = torch.var_mean(x.double(), [0, *range(2, x.dim())], correction=0)
    gamma, beta = norm.get_parameter("weight"), norm.get_parameter("bias")
    return float(((beta - mean).abs() / (gamma.square() + var).sqrt()).mean())


def worst_groups(model: nn.Module, task: Task) -> dict[str, float]:
    """Accuracy of the worst group of the validation and test samples, and of all test samples; empty without groups.

    With these figures an epoch can be chosen by validation samples when the training is over.
    """
    found: dict[str, float] = {}
    for name, split in (("valid", task.valid), ("test", task.test)):
        if split is not None and split.groups is not None:
            right = correct(model, split)
            found |= {name: group_accuracy(right, split.groups).worst, f"{name}_all": float(right.double().mean())}
    return found


PROBES: dict[str, Probe] = {
    "weight_norms": weight_norms,
    "invariant_lengths": invariant_lengths,
    "moments": moments,
    "sharpness": sharpness,
    "arrival": arrival,
    "slopes": slopes,
    "norm_steps": norm_steps,
    "descent": descent,
    "tested_on_training": accuracy_on_training,
    "exponents": exponents,
    "eight_steps": eight_steps,
    "worst_groups": worst_groups,
}
