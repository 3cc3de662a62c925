"""Mean and variance of gradients over samples, in three ways.

``"vmap"``: each sample alone, vectorized by torch.func. For evaluation, where samples are independent.
``"backward"``: one backward per sample with the whole batch in the graph. With batch statistics f_i is sample i's term
    of the loss, which depends on the other samples too.
``"batches"``: one gradient per mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ...introspect.axes import axes_of
from ...introspect.layouts import keeps_statistics, layout_of
from ...introspect.observe import call_model

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
DESCRIPTIONS = {
    "vmap": "each sample alone (torch.func)",
    "backward": "each sample's loss term with its whole batch in the graph",
    "batches": "one per mini-batch",
}
WAYS = tuple(DESCRIPTIONS)
_CHUNK = 32


class GradientMoments:
    """Mean of vectors and their mean squared distance from it, pooled over blocks (Chan et al.)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | float = 0.0
        self._squares = 0.0

    def add(self, rows: Tensor) -> None:
        """Add a block of vectors, one per row."""
        rows = rows.detach().reshape(len(rows), -1).double()
        middle = rows.mean(0)
        gap = middle - self.mean
        total = self.count + len(rows)
        self._squares += float((rows - middle).square().sum())
        self._squares += float(gap.square().sum()) * self.count * len(rows) / total
        self.mean = self.mean + gap * (len(rows) / total)
        self.count = total

    @property
    def variance(self) -> float:
        """E‖g − E g‖²."""
        return self._squares / self.count

    @property
    def size(self) -> float:
        """‖E g‖²."""
        return float(torch.as_tensor(self.mean).square().sum())


def sample_losses(model: nn.Module, batch: Any, loss: Loss) -> Tensor:
    """The loss of each sample of a batch (input, target)."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2 or not isinstance(batch[1], Tensor):
        raise TypeError(f"expected batches (input, target) for a loss (got {type(batch).__name__})")
    scores = call_model(model, batch)
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"expected a model that returns one tensor (got {type(scores).__name__}); wrap it in one that returns what "
            "the loss needs"
        )
    losses = loss(scores, batch[1].to(scores.device))
    if not isinstance(losses, Tensor) or losses.shape != (len(batch[1]),):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"expected loss(output, target) to return one value per sample, shape ({len(batch[1])},) (got {got}); "
            "use reduction='none', and sum over all other dimensions"
        )
    return losses


def gradient_moments(
    model: nn.Module, batches: Sequence[Any], loss: Loss, parameters: dict[str, nn.Parameter], how: str
) -> tuple[dict[str, GradientMoments], str]:
    """Moments of the gradient of each parameter by name, and the way they were computed.

    ``"auto"`` is ``"vmap"`` for a model in evaluation whose samples are independent, if torch.func can run it, and
    ``"backward"`` otherwise.
    """
    if how not in ("auto", *WAYS):
        raise ValueError(f"expected how to be one of {('auto', *WAYS)} (got {how!r})")
    is_joint = any(module.training or _joins_samples(module) for module in model.modules())
    if how == "vmap" and is_joint:
        raise ValueError(
            "expected a model in evaluation, with running statistics, for how='vmap', which takes samples one by one; "
            "model.eval(), or how='backward' for batch statistics"
        )
    for way in {"auto": ("backward",) if is_joint else ("vmap", "backward")}.get(how, (how,)):
        moments = {name: GradientMoments() for name in parameters}
        try:
            for gradients in _WAYS[way](model, batches, loss, parameters):
                for name, rows in gradients.items():
                    moments[name].add(rows)
        except (RuntimeError, NotImplementedError):
            if how == "auto" and way == "vmap":  # an operation that torch.func has no rule for
                continue
            raise
        return moments, way
    raise AssertionError


def _joins_samples(module: nn.Module) -> bool:
    """Whether a norm uses batch statistics in evaluation too."""
    layout = layout_of(module)
    joint = axes_of(module) == "batch" or (layout is not None and layout.axes == "graph")
    return joint and not keeps_statistics(module)


def _vectorized(
    model: nn.Module, batches: Sequence[Any], loss: Loss, parameters: dict[str, nn.Parameter]
) -> Iterator[dict[str, Tensor]]:
    values = {name: parameter.detach() for name, parameter in parameters.items()}

    def one(values: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
        return loss(functional_call(model, values, (x.unsqueeze(0),)), target.unsqueeze(0)).sum()

    of_all = vmap(grad(one), in_dims=(None, 0, 0), randomness="same")
    home = next(iter(parameters.values())).device
    for batch in batches:
        sample_losses(model, batch, loss)  # its errors are clearer
        for x, target in zip(batch[0].split(_CHUNK), batch[1].split(_CHUNK), strict=True):
            yield of_all(values, x.to(home), target.to(home))


def _one_by_one(
    model: nn.Module, batches: Sequence[Any], loss: Loss, parameters: dict[str, nn.Parameter]
) -> Iterator[dict[str, Tensor]]:
    for batch in batches:
        losses = sample_losses(model, batch, loss)
        for value in losses:
            found = torch.autograd.grad(value, list(parameters.values()), retain_graph=True, materialize_grads=True)
            yield {name: gradient.unsqueeze(0) for name, gradient in zip(parameters, found, strict=True)}


def _by_batch(
    model: nn.Module, batches: Sequence[Any], loss: Loss, parameters: dict[str, nn.Parameter]
) -> Iterator[dict[str, Tensor]]:
    for batch in batches:
        value = sample_losses(model, batch, loss).mean()
        found = torch.autograd.grad(value, list(parameters.values()), materialize_grads=True)
        yield {name: gradient.unsqueeze(0) for name, gradient in zip(parameters, found, strict=True)}


_WAYS = {"vmap": _vectorized, "backward": _one_by_one, "batches": _by_batch}
