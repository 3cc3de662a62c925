"""Leaving out channels of norms: statistics of their outputs, and a model with some of them masked.

A channel is left out in one of two ways: its output is 0, or it is replaced by that of another channel of the same
norm. The second suits duplicates: if both are equal, nothing changes, and the next layer can add up its two weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...introspect.layouts import layout_of
from ...introspect.observe import call_model


class Drop(NamedTuple):
    """A channel that is left out.

    Attributes:
        layer: name of its norm.
        channel: its number.
        into: the channel whose output replaces its own; ``None`` for 0.
    """

    layer: str
    channel: int
    into: int | None = None


def channel_norms(model: nn.Module) -> dict[str, Any]:
    """The batch norms that have γ and β, by name."""
    found = {}
    for name, module in model.named_modules():
        layout = layout_of(module)
        if layout is not None and layout.axes == "batch" and module.weight is not None and module.bias is not None:
            found[name] = module
    if not found:
        raise ValueError("expected batch norms with γ and β, whose channels can be left out (got none)")
    return found


class OutputGram:
    """Second moments of a norm's channels, over all batches."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Tensor | float = 0.0
        self.products: Tensor | float = 0.0

    @torch.no_grad()
    def __call__(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """A forward hook."""
        rows = output.movedim(1, 0).flatten(1).double()
        self.count += rows.shape[1]
        self.total = self.total + rows.sum(1)
        self.products = self.products + rows @ rows.T

    def differences(self) -> Tensor:
        """E(y_i − y_j)² of all pairs."""
        products = torch.as_tensor(self.products) / self.count
        own = products.diagonal()
        return (own[:, None] + own[None, :] - 2 * products).clamp_min(0)

    def correlations(self) -> Tensor:
        """Correlations of all pairs; 0 for a channel that does not vary."""
        mean = torch.as_tensor(self.total) / self.count
        covariance = torch.as_tensor(self.products) / self.count - torch.outer(mean, mean)
        deviations = covariance.diagonal().clamp_min(0).sqrt()
        scale = torch.outer(deviations, deviations)
        return torch.where(scale > 1e-12 * covariance.abs().max(), covariance / scale, 0.0)


@torch.no_grad()
def output_grams(model: nn.Module, norms: dict[str, nn.Module], batches: Iterable[Any]) -> dict[str, OutputGram]:
    """Gram matrices of the outputs of these norms."""
    grams = {name: OutputGram() for name in norms}
    with _hooked((norm, grams[name]) for name, norm in norms.items()):
        for batch in batches:
            call_model(model, batch)
    return grams


@contextmanager
def masked(model: nn.Module, drops: Sequence[Drop]) -> Iterator[None]:
    """Within the block, the model runs without these channels."""
    by_layer: dict[str, list[Drop]] = {}
    for drop in drops:
        by_layer.setdefault(drop.layer, []).append(drop)
    modules = dict(model.named_modules())
    with _hooked((modules[name], _mask(own)) for name, own in by_layer.items()):
        yield


def _mask(drops: Sequence[Drop]) -> Callable[..., Tensor]:
    zeroed = [drop.channel for drop in drops if drop.into is None]
    pairs = [(drop.channel, drop.into) for drop in drops if drop.into is not None]

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        changed = output.clone()
        changed[:, [channel for channel, _ in pairs]] = output[:, [into for _, into in pairs]]
        changed[:, zeroed] = 0
        return changed

    return hook


@contextmanager
def _hooked(hooks: Iterable[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
