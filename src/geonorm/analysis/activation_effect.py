"""``activation_effect``: how much of a normalization survives the activation, at the next operation's input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..html.result import Result, figure
from ..introspect.graph import is_operation
from ..introspect.observe import (
    Forward,
    call_model,
    check_readable,
    filled_batches,
    measure_each_batch,
    norms_of,
    state_restored,
    uncompiled,
)
from ..introspect.progress import progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class ActivationEffect(Result):
    """What ``activation_effect`` found.

    Attributes:
        operations: the operations that ran, in the order of the model.
        skipped: names of operations that were skipped, with the reason.
    """

    operations: list[OperationInput]
    skipped: dict[str, str]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("operation", "mean²/rms²", "rms", "lowest", "highest", "division passed on")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each operation."""
        return [(a.name, a.mean_share, a.rms, a.rms_low, a.rms_high, a.division) for a in self.operations]

    def plot(self) -> Figure:
        """Mean share and division at each operation's input."""
        drawn = figure(7.0, 1.0 + 0.25 * max(len(self.operations), 4))
        axes = drawn.subplots()
        places = range(len(self.operations))
        axes.plot([a.mean_share for a in self.operations], places, "o", label="mean²/rms²: 0 if the mean is 0")
        passed = [float("nan") if a.division is None else a.division for a in self.operations]
        axes.plot(passed, places, "x", label="division passed on: 1 if fully")
        axes.set_yticks(list(places), [a.name for a in self.operations])
        axes.set_xlim(left=-0.05)
        axes.invert_yaxis()
        axes.legend(loc="best")
        return drawn


@dataclass
class OperationInput:
    """The input of one operation.

    Attributes:
        name: its name in the model.
        mean_share: mean²/rms² of its input, averaged over channels: 0 if the mean is still removed, 1 if only the mean
            is left.
        rms: of its input, averaged over channels.
        rms_low, rms_high: the lowest and the highest of all channels.
        division: d log rms / d log λ when the norms before it scale their output by λ: 1 if the activation passes
            the division on unchanged (ReLU), near 0 if it loses it, above 1 if it amplifies it (GELU); ``None``
            without a norm.
    """

    name: str
    mean_share: float
    rms: float
    rms_low: float
    rms_high: float
    division: float | None


def activation_effect(model: nn.Module, batches: Any, forward: Forward | None = None) -> ActivationEffect:
    """How much of the mean removal and of the division of a norm survives the activation after it.

        mean²/rms² and rms at each operation's input;  division passed on: d log rms(a(λ·y)) / d log λ at λ = 1

    For normal inputs ReLU∘BatchNorm has rms 1/√2 and mean²/rms² = 1/π: up to √2, it divides by the rms of the ReLU,
    and the mean is no longer 0. tanh keeps the mean at 0 and passes on a part of the division; sigmoid does neither.

    Args:
        model: any model, in any mode; it is not changed.
        batches: a batch or an iterable of batches. A batch is a tensor, a tuple whose first entry is the input, or a
            dict of the model's arguments.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the input.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import activation_effect
        >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> batch = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
        >>> (linear,) = activation_effect(model, batch).operations
        >>> round(linear.rms, 1), round(linear.mean_share, 1), round(linear.division, 6)
        (0.7, 0.3, 1.0)
    """
    check_readable(model, "measure the activation_effect in")
    cut = _Cut()
    with state_restored(model), torch.enable_grad(), uncompiled():
        measure_each_batch(model)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for norm in norms_of(model).values():
            norm.register_forward_hook(cut.at_norm)
        for name, module in model.named_modules():
            if is_operation(module):
                module.register_forward_pre_hook(cut.at_operation(name))
        for batch in progress(filled_batches(batches), "activation_effect"):
            cut.leaves.clear()
            (forward or call_model)(model, batch)
    order = [name for name, module in model.named_modules() if is_operation(module)]
    skipped = {name: cut.skipped.get(name, "it never ran") for name in order if name not in cut.sums}
    return ActivationEffect([cut.sums[name].operation_input(name) for name in order if name in cut.sums], skipped)


class _Sums:
    """Sums over batches for one operation; each value counts once."""

    def __init__(self, channels: int) -> None:
        self.number = 0
        self.total = torch.zeros(channels, dtype=torch.float64)
        self.squares = torch.zeros(channels, dtype=torch.float64)
        self.passed, self.reference = 0.0, 0.0
        self.has_norm = False

    def operation_input(self, name: str) -> OperationInput:
        rms = (self.squares / self.number).sqrt()
        share = (self.total / self.number).square() / (self.squares / self.number).clamp_min(1e-300)
        division = self.passed / self.reference if self.has_norm and self.reference else None
        return OperationInput(
            name, float(share.mean()), float(rms.mean()), float(rms.min()), float(rms.max()), division
        )


class _Cut:
    """Cuts the graph at norms: gradients go from an operation's input back to the norms before it, and no further."""

    def __init__(self) -> None:
        self.leaves: list[Tensor] = []
        self.sums: dict[str, _Sums] = {}
        self.skipped: dict[str, str] = {}

    def at_norm(self, norm: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        leaf = output.detach().requires_grad_(True)
        self.leaves.append(leaf)
        return leaf.clone()  # an activation that works in place must not touch a leaf

    def at_operation(self, name: str) -> Any:
        def hook(operation: nn.Module, inputs: tuple[Any, ...]) -> None:
            x = inputs[0] if inputs else None
            if not isinstance(x, Tensor) or not x.numel() or not x.is_floating_point():
                return
            if not bool(x.isfinite().all()):
                self.skipped[name] = "NaN or Inf in its input"
                self.sums.pop(name, None)
                return
            last = isinstance(operation, nn.Linear) or x.dim() < 2
            rows = x.detach().movedim(-1 if last else 1, 0).flatten(1)
            if name not in self.skipped:
                sums = self.sums.setdefault(name, _Sums(len(rows)))
                sums.number += rows.shape[1]
                sums.total += rows.sum(1, dtype=torch.float64).cpu()
                sums.squares += rows.square().sum(1, dtype=torch.float64).cpu()
                self._add_division(sums, x)

        return hook

    def _add_division(self, sums: _Sums, x: Tensor) -> None:
        """⟨∂(½‖a‖²)/∂y, y⟩ / ‖a‖²: the change of log rms(a) with the log of a common factor of all norm outputs y."""
        if not x.requires_grad or not self.leaves:
            return
        gradients = torch.autograd.grad(x, self.leaves, x.detach(), retain_graph=True, allow_unused=True)
        sums.has_norm = True
        for leaf, gradient in zip(self.leaves, gradients, strict=True):
            if gradient is not None:
                sums.passed += float((gradient * leaf.detach()).sum(dtype=torch.float64))
        sums.reference += float(x.detach().square().sum(dtype=torch.float64))
