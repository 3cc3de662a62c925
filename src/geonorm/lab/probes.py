"""What is measured inside the model after every epoch, beside loss and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..surgery.layouts import is_norm
from .curvature_probes import arrival, sharpness, slopes
from .data import Task

Probe = Callable[[nn.Module, Task], dict[str, Any]]


def weight_norms(model: nn.Module, task: Task) -> dict[str, float]:
    """The length of every weight of a convolution or linear layer, by its name."""
    return {
        name: float(parameter.detach().norm())
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and not is_norm(model.get_submodule(name.rpartition(".")[0]))
    }


PROBES: dict[str, Probe] = {
    "weight_norms": weight_norms,
    "sharpness": sharpness,
    "arrival": arrival,
    "slopes": slopes,
}
