"""Probes of POP-Norm's theorems: what its two steps do to the inputs of a layer, and how SGD without momentum descends.

``norm_steps`` looks at the inputs x of each layer with a POP-Norm before it, after the mean removal (x̄) and after the
division (x̂), as in the paper's equations 11 and 12, with the learned γ and β, on the same samples and weights.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from geonorm.analysis import curvature
from geonorm.lab.data import Task
from geonorm.nn._pop import PopLayer

_INPUTS = 1024
_STEPS = 24  # products with the Hessian: enough to know its largest eigenvalue to about a per cent
_CONSTANT = 1e-8  # variance of channels, such as pixels at the edge, of which a condition number would be infinite


def norm_steps(model: nn.Module, task: Task) -> dict[str, list[list[float]]]:
    """For each POP-Norm, in the order of the network, figures of x, x̄ and x̂.

    ``energy`` is E‖x‖², ``largest`` the largest eigenvalue of E[xxᵗ], ``diagonal`` the ratio of its largest and its
    smallest diagonal entry, ``condition`` that of its eigenvalues; ``allowed`` the shares of channels that meet the
    conditions |γ| ≤ κ·rms(x̄) and |β| ≤ |E x|. Channels that are constant are left out.
    """
    split = task.train.sample(_INPUTS)
    watched, found = copy.deepcopy(model).train(), dict[str, list[list[float]]]()

    def look(layer: PopLayer, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for name, values in _figures(layer, inputs[0], output).items():
            found.setdefault(name, []).append(values)

    for module in watched.modules():
        if isinstance(module, PopLayer):
            module.register_forward_hook(look)
    with torch.no_grad():
        watched(split.tensor())
    return found


def _figures(layer: PopLayer, before: Tensor, after: Tensor) -> dict[str, list[float]]:
    x, divided = (values.detach().double().movedim(1, -1).flatten(0, -2) for values in (before, after))
    mean = x.mean(0)
    beta, gamma = (layer.get_parameter(name).detach().double() for name in ("bias", "weight"))
    centered = x - mean + beta
    varies = x.var(0) > _CONSTANT
    moments = [values[:, varies].T @ values[:, varies] / len(x) for values in (x, centered, divided)]
    diagonals = [moment.diagonal() for moment in moments]
    spectra = [torch.linalg.eigvalsh(moment) for moment in moments]
    rms = diagonals[1].sqrt()
    return {
        "energy": [float(diagonal.sum()) for diagonal in diagonals],
        "largest": [float(spectrum[-1]) for spectrum in spectra],
        "diagonal": [float(diagonal.max() / diagonal.min()) for diagonal in diagonals],
        "condition": [float(spectrum[-1] / spectrum[0]) if spectrum[0] > 0 else math.inf for spectrum in spectra],
        "allowed": [
            float((gamma.abs()[varies] <= layer.kappa * rms).double().mean()),
            float((beta.abs() <= mean.abs())[varies].double().mean()),
        ],
    }


def descent(model: nn.Module, task: Task) -> dict[str, float]:
    """Over all training samples: F, ‖∇F‖², E‖∇f_i − ∇F‖² over single samples, and the largest |λ| of the Hessian."""
    split = task.train
    still = copy.deepcopy(model).eval()
    whole = curvature(still, (split.tensor(), split.y), where=_nothing, steps=_STEPS, tolerance=0.01)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(still(split.tensor()), split.y)
    return {
        "loss": float(loss),
        "gradient": whole.blocks[0].gradient,
        "variance": whole.blocks[0].variance,
        "lipschitz": math.nan if whole.lipschitz is None else whole.lipschitz,
    }


def _nothing(name: str, module: nn.Module) -> bool:
    return False
