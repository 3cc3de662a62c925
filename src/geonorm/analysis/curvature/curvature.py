"""``curvature``: noise of the gradient, sharpness of the loss, conditioning of each layer's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ...html.result import Result, figure
from ...introspect.graph import is_operation
from ...introspect.observe import check_readable, filled_batches, state_restored, uncompiled
from ...introspect.progress import progress
from ...introspect.select import Where, chosen
from ...surgery.placement import PRE_NORM
from .conditioning import input_grams
from .lanczos import Ends, lanczos
from .per_sample import DESCRIPTIONS, GradientMoments, Loss, gradient_moments, sample_losses

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Block(NamedTuple):
    """One layer.

    Attributes:
        name: of the layer; ``"(all)"`` for all parameters together.
        parameters: number of trained values.
        variance: E‖∇f_i − ∇F‖².
        gradient: ‖∇F‖².
        largest, smallest: ends of the spectrum of the Hessian's block; ``None`` if not requested.
        error: an eigenvalue lies within this distance of each of the two.
        condition: condition number of E[zzᵗ] of the layer's inputs; ``None`` if unknown.
    """

    name: str
    parameters: int
    variance: float
    gradient: float
    largest: float | None
    smallest: float | None
    error: float | None
    condition: float | None


@dataclass(repr=False)
class Curvature(Result):
    """What ``curvature`` found.

    Attributes:
        how: what counts as one gradient in the variance: ``"vmap"``, ``"backward"`` or ``"batches"``.
        samples: number of gradients.
        training: whether the model was in training, with batch statistics.
        blocks: all parameters together, then layer by layer.
    """

    how: str
    samples: int
    training: bool
    blocks: list[Block]

    @property
    def lipschitz(self) -> float | None:
        """The gradient's Lipschitz constant here: the largest |λ| of the Hessian."""
        whole = self.blocks[0]
        if whole.largest is None or whole.smallest is None:
            return None
        return max(whole.largest, -whole.smallest)

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("layer", "values", "variance", "‖∇F‖²", "λ max", "λ min", "± at most", "condition of inputs")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each block."""
        return [tuple(block) for block in self.blocks]

    def table(self) -> str:
        """The table, under a line that says what was measured."""
        mode = "training (batch statistics)" if self.training else "evaluation"
        return f"model in {mode}; variance over {self.samples} gradients, {DESCRIPTIONS[self.how]}\n\n{super().table()}"

    def plot(self) -> Figure:
        """Variance, largest eigenvalue and condition number of the layers, on logarithmic axes."""
        layers = self.blocks[1:] or self.blocks
        drawn = figure(9.0, 1.0 + 0.25 * max(len(layers), 4))
        panels: Any = drawn.subplots(1, 3, sharey=True)
        measured: list[tuple[str, list[float | None]]] = [
            ("gradient variance", [block.variance for block in layers]),
            ("largest eigenvalue", [block.largest for block in layers]),
            ("condition of inputs", [block.condition for block in layers]),
        ]
        for axes, (label, values) in zip(panels, measured, strict=True):
            axes.plot([v if v is not None and v > 0 else float("nan") for v in values], range(len(layers)), "o")
            axes.set_xscale("log")
            axes.set_xlabel(label)
        panels[0].set_yticks(range(len(layers)), [block.name for block in layers])
        panels[0].invert_yaxis()
        return drawn


def curvature(
    model: nn.Module,
    batches: Any,
    loss: Loss | None = None,
    *,
    how: str = "auto",
    where: Where = None,
    hessian: bool = True,
    steps: int = 64,
    tolerance: float = 1e-4,
) -> Curvature:
    """Variance of the gradient, ends of the Hessian's spectrum and condition of the inputs, as a whole and by layer.

        V = E‖∇f_i − ∇F‖²        F = mean f_i        L = largest |λ(∇²F)|        condition of E[zzᵗ]

    In training mode with batch statistics f_i is sample i's term of the loss with the whole batch in the graph; the
    result says which gradients were used. The Hessian is that of F over all batches, in the current mode of the model;
    its eigenvalues come from Lanczos iterations.

    Args:
        model: any model; its mode is kept and decides whether batch statistics are used. Parameters must be in
            float32 or float64.
        batches: a batch or several, each (input, target). All are kept in memory.
        loss: ``loss(output, target)`` with one value per sample. Default: cross entropy.
        how: which gradients count: ``"vmap"``, ``"backward"``, ``"batches"``, or ``"auto"`` for the first in evaluation
            and the second in training.
        where: which layers get their own rows: a pattern, several, or a function of (name, module). Default: all
            Linear and Conv layers.
        hessian: compute eigenvalues too; each layer takes up to ``steps`` double backward passes over all batches.
        steps: the most products with the Hessian for each block.
        tolerance: stop when the eigenvalues are certain to this share of the largest.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import curvature
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        >>> found = curvature(model, (torch.randn(16, 4), torch.arange(16) % 3))
        >>> found.how, [block.name for block in found.blocks]
        ('backward', ['(all)', '0', '2'])
        >>> found.lipschitz > 0
        True
    """
    check_readable(model, "measure the curvature of")
    given = list(filled_batches(batches))
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    _check(parameters)
    term = loss or _cross_entropy
    layers = _layers(model, where)
    with state_restored(model), torch.enable_grad(), uncompiled():
        moments, way = gradient_moments(model, given, term, parameters, how)
        with torch.no_grad(), input_grams(layers) as grams:
            for batch in given:
                sample_losses(model, batch, term)
        owners = {id(p): name for name, p in parameters.items()}
        members = {"(all)": list(parameters)} | {
            name: [owners[id(p)] for p in _own_parameters(layer) if id(p) in owners] for name, layer in layers.items()
        }
        blocks = []
        for name, own in progress([item for item in members.items() if item[1]], "curvature"):
            ends = None
            if hessian:
                product = _HessianProduct(model, given, term, [parameters[n] for n in own])
                ends = lanczos(product, product.start(), steps, tolerance)
            gram = grams.get(name)
            blocks.append(_block(name, [moments[n] for n in own], ends, None if gram is None else gram.condition()))
    training = any(module.training for module in model.modules())
    return Curvature(way, next(iter(moments.values())).count, training, blocks)


class _HessianProduct:
    """v → ∇²F·v for some parameters, F the mean loss over all batches."""

    def __init__(
        self, model: nn.Module, batches: Sequence[Any], loss: Loss, parameters: Sequence[nn.Parameter]
    ) -> None:
        self.model, self.batches, self.loss, self.parameters = model, batches, loss, parameters
        self.samples = sum(len(batch[1]) for batch in batches)
        self.state = torch.get_rng_state()

    def start(self) -> Tensor:
        """A random vector, the same each time."""
        size, like = sum(p.numel() for p in self.parameters), self.parameters[0]
        return torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=like.dtype).to(like.device)

    def __call__(self, vector: Tensor) -> Tensor:
        torch.set_rng_state(self.state)  # dropout masks are part of the function
        parts = [
            part.view_as(p)
            for part, p in zip(vector.split([p.numel() for p in self.parameters]), self.parameters, strict=True)
        ]
        total = torch.zeros_like(vector)
        for batch in self.batches:
            value = sample_losses(self.model, batch, self.loss).sum() / self.samples
            first = torch.autograd.grad(value, self.parameters, create_graph=True, materialize_grads=True)
            dependent = [(g, part) for g, part in zip(first, parts, strict=True) if g.requires_grad]
            if dependent:  # a constant gradient has no derivative
                second = torch.autograd.grad(
                    [g for g, _ in dependent], self.parameters, [part for _, part in dependent], materialize_grads=True
                )
                total = total + torch.cat([g.detach().flatten() for g in second])
        return total


def _cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, target, reduction="none")


def _check(parameters: dict[str, nn.Parameter]) -> None:
    if not parameters:
        raise ValueError("expected parameters that require gradients (got none); all are frozen, or there are none")
    for name, parameter in parameters.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"expected parameters in float32 or float64 (got {name} in {parameter.dtype}): rounding errors would "
                "dominate second derivatives; use a copy: copy.deepcopy(model).float()"
            )


def _layers(model: nn.Module, where: Where) -> dict[str, nn.Module]:
    is_chosen: Callable[[str, nn.Module], bool] = chosen(model, where)
    return {
        name: module
        for name, module in model.named_modules()
        if name and (is_operation(module) if where is None else is_chosen(name, module))
    }


def _own_parameters(layer: nn.Module) -> list[nn.Parameter]:
    """The layer's parameters, without those of a norm that was inserted before it."""
    return [p for name, p in layer.named_parameters() if not name.startswith(f"{PRE_NORM}.")]


def _block(name: str, moments: Sequence[GradientMoments], ends: Ends | None, condition: float | None) -> Block:
    return Block(
        name,
        sum(torch.as_tensor(m.mean).numel() for m in moments),
        sum(m.variance for m in moments),
        sum(m.size for m in moments),
        None if ends is None else ends.largest,
        None if ends is None else ends.smallest,
        None if ends is None else ends.error,
        condition,
    )
