"""Statistics of one norm during training: gaps between its parameters and its input, lag, learned φ and α, pulls.

The raw gaps cannot test the claim that γ² ≈ σ² and β ≈ μ after training: scaling the weight before the norm changes σ²
and μ, but not the loss, γ and β. So the gaps are also reported with the weight's rows at length 1 and without the bias
of the operation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...functional import guard
from ...introspect.graph import trace
from ...introspect.layouts import is_norm, is_ours, layout_of
from ...introspect.shared_channels import TRANSPOSED, could_share_channels, dimensions_of_channels
from ...surgery.stat_accumulator import element_weight_of
from .guard import GuardWatch, is_guarded


def norm_watches(model: nn.Module) -> list[NormWatch]:
    """The norms of a model that have something to record: batch norms, guarded ones, and those that learn φ or α."""
    modules = dict(model.named_modules())
    near = trace(model).norms
    found = []
    for name, module in modules.items():
        if not is_norm(module):
            continue
        before = near[name].before if name in near else None
        operation = None if before is None else modules[before]
        paired = operation is not None and could_share_channels(operation, module)
        watch = NormWatch(name or "(model)", module, operation if paired else None)
        if watch.has_moments or watch.learns or watch.guard is not None:
            found.append(watch)
    return found


class NormHook:
    """The hook of a watch. In a copy of the model, or one loaded from a file, it removes itself."""

    def __init__(self, watch: NormWatch | None = None) -> None:
        self.watch = watch

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.watch is not None:
            self.watch.measure(module, inputs, kwargs)
            return
        for key in [key for key, hook in module._forward_pre_hooks.items() if hook is self]:
            del module._forward_pre_hooks[key], module._forward_pre_hooks_with_kwargs[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> NormHook:
        return NormHook()

    def __reduce__(self) -> tuple[type[NormHook], tuple[()]]:
        return NormHook, ()


class NormWatch:
    """Measures the input of one norm in training."""

    def __init__(self, name: str, module: nn.Module, operation: nn.Module | None) -> None:
        self.name, self.module, self.operation = name, module, operation
        layout = layout_of(module)
        self.has_moments = (layout is not None and layout.axes == "batch") or isinstance(module, nn.SyncBatchNorm)
        self.learns = is_ours(module) and (module.learn_phi or module.learn_alpha)
        self.guard = GuardWatch(name, module) if is_guarded(module) else None
        self.forget()

    def forget(self) -> None:
        """Start a new step: earlier measurements belong to another one."""
        self._mean: Tensor | None = None
        self._var: Tensor | None = None
        self._lengths: Tensor | None = None
        self._bias: Tensor | float = 0.0
        self._running: tuple[Tensor, Tensor] | None = None
        if self.guard is not None:
            self.guard.forget()

    @torch.no_grad()
    def measure(self, module: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook, so before running statistics and weights are updated. The last batch counts."""
        x = inputs[0] if inputs else kwargs.get("input")
        if not self.has_moments or not module.training or not isinstance(x, Tensor) or x.dim() < 2 or not x.numel():
            return
        if element_weight_of(x, kwargs) is not None:  # padded values are not the norm's input
            return
        x = x.detach()
        if self.guard is not None and module.guard is not None:  # the norm uses the statistics after pulling
            x = guard(x, module.guard).output
        dims = [0, *range(2, x.dim())]
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        var, mean = torch.var_mean(wide, dims, correction=0)
        self._var, self._mean = var.double(), mean.double()
        operation: Any = self.operation
        if operation is not None and x.dim() == dimensions_of_channels(operation):
            self._lengths = _row_lengths(operation)
            # The norm subtracts the bias, so it does not belong to the mean that the weight causes.
            self._bias = 0.0 if operation.bias is None else operation.bias.detach().double()
        if getattr(module, "running_mean", None) is not None:
            self._running = module.running_mean.double().clone(), module.running_var.double().clone()

    @torch.no_grad()
    def record(self) -> dict[str, Any]:
        """Values of this step, means over channels; ``None`` if not measured."""
        found: dict[str, Any] = {}
        if self.has_moments:
            moments = None if self._mean is None or self._var is None else (self._mean, self._var)
            found |= self._gaps("", moments)
            unit = None
            if moments is not None and self._lengths is not None:
                unit = (moments[0] - self._bias) / self._lengths, moments[1] / self._lengths.square()
            found |= self._gaps("_unit", unit)
            found |= self._gaps("_running", self._running)
            found["lag_mean"] = found["lag_var"] = None
            if moments is not None and self._running is not None:
                mean, var = moments
                found["lag_mean"] = _mean(((self._running[0] - mean).square() / var).mean().sqrt())
                found["lag_var"] = _mean((self._running[1] / var).log().abs())
        if self.learns:
            module: Any = self.module
            for name, value in (("phi", module.phi), ("alpha", module._alpha())):
                if isinstance(value, Tensor):
                    found |= {name: _mean(value), f"{name}_min": _mean(value.min()), f"{name}_max": _mean(value.max())}
        if self.guard is not None:
            found |= self.guard.record()
        return found

    def _gaps(self, which: str, moments: tuple[Tensor, Tensor] | None) -> dict[str, float | None]:
        names = (f"gamma_gap{which}", f"gamma_share{which}", f"beta_gap{which}")
        if moments is None:
            return dict.fromkeys(names)
        mean, var = moments
        gamma, beta = (getattr(self.module, name, None) for name in ("weight", "bias"))
        square = torch.ones_like(var) if gamma is None else gamma.detach().double().square()
        shift = torch.zeros_like(mean) if beta is None else beta.detach().double()
        gap = (square - var).abs()
        return dict(zip(names, (_mean(gap), _mean(gap / (square + var)), _mean((shift - mean).abs())), strict=True))


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


def _row_lengths(operation: Any) -> Tensor | None:
    """‖W_i‖ of each output channel."""
    transposed = isinstance(operation, TRANSPOSED)
    if transposed and operation.groups != 1:
        return None
    weight: Tensor = operation.weight.detach().double().movedim(1 if transposed else 0, 0)
    lengths: Tensor = weight.flatten(1).norm(dim=1)
    return lengths
