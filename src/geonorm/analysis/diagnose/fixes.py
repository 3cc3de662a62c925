"""Safe fixes: they restore what the network was meant to do, and leave every real decision to a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...introspect.graph import trace
from ...introspect.layouts import keeps_statistics
from ...introspect.observe import Forward, as_float, copy_of
from ...introspect.progress import without_bars
from ...surgery.freeze import freeze
from ...surgery.recalibrate import recalibrate
from .finding import Finding


def fixed_copy(
    model: nn.Module, findings: Sequence[Finding], batches: Sequence[Any], forward: Forward | None
) -> tuple[nn.Module, list[str], list[Any]]:
    """A copy with all safe fixes applied, the list of changes, and the batches in the dtype of the copy."""
    wanted: dict[str, list[str]] = {}
    for finding in findings:
        for one in (finding, *finding.consequences):
            if one.cure:
                layers = one.layers or [one.layer]
                wanted.setdefault(one.cure, []).extend(name for name in layers if name not in wanted.get(one.cure, []))
    copied, done, fitting = copy_of(model), [], list(batches)
    if "float32" in wanted:
        copied, fitting = copied.float(), [as_float(batch) for batch in batches]
        done.append("converted to float32")
    for cure, layers in wanted.items():
        apply = _CURES.get(cure)
        if apply is not None:
            done.append(apply(copied, layers))
    if any(cure in wanted for cure in ("recalibrate", "momentum", "rescale")):
        with without_bars():
            report = recalibrate(copied, fitting, forward)
        done.append(f"recalibrated {len(report.changed)} norms on {len(fitting)} batches")
    return copied, done, fitting


def _modules(model: nn.Module, layers: Sequence[str]) -> list[Any]:
    return [model.get_submodule("" if name == "(model)" else name) for name in layers]


def _momentum(model: nn.Module, layers: Sequence[str]) -> str:
    for norm in _modules(model, layers):
        norm.momentum = 0.1
    return f"momentum 0.1 in {len(layers)} norms"


def _train(model: nn.Module, layers: Sequence[str]) -> str:
    for norm in _modules(model, layers):
        norm.training = True
    return f"{len(layers)} norms back in training mode"


def _freeze(model: nn.Module, layers: Sequence[str]) -> str:
    chosen = set(layers)
    freeze(model, where=lambda name, _: (name or "(model)") in chosen)
    return f"statistics of {len(layers)} norms frozen"


@torch.no_grad()
def _remove_bias(model: nn.Module, layers: Sequence[str]) -> str:
    """Remove biases that the next norm subtracts; the running mean, which includes them, is corrected."""
    modules = dict(model.named_modules())
    norm_after = {near.before: modules[name] for name, near in trace(model).norms.items() if near.before}
    for name in layers:
        operation: Any = modules[name]
        norm: Any = norm_after.get(name)
        if norm is None or operation.bias is None:
            continue
        for buffer in ("running_mean", "running_center"):
            if keeps_statistics(norm) and isinstance(getattr(norm, buffer, None), Tensor):
                getattr(norm, buffer).sub_(operation.bias)
        operation.bias = None
    return f"biases of {len(layers)} layers removed"


def _rescale(model: nn.Module, layers: Sequence[str]) -> str:
    from ...optim import project_scale_invariant

    modes = [(module, module.training) for module in model.modules()]
    project_scale_invariant(model.train(), radius=1.0)
    for module, mode in modes:
        module.training = mode
    return "weights before norms rescaled to length 1"


_CURES: dict[str, Callable[[nn.Module, Sequence[str]], str]] = {
    "train": _train,
    "momentum": _momentum,
    "rescale": _rescale,
    "remove bias": _remove_bias,
    "freeze": _freeze,
}
