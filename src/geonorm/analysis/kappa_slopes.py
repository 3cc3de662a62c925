"""``kappa_slopes``: the effect of POP-Norm's divisor κ on the curvature.

The divisor scales the input of the next layer: F_κ(w) = F(w/κ), so its gradients scale with 1/κ and its Hessian with
1/κ². But if a positively homogeneous activation and another POP-Norm follow, they cancel the scale of the layer's
output: there the loss does not depend on κ at all. So slopes are −2 for the last layer, and 0 for interior layers with
ReLU if they have no bias: κ does not scale a bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from ..html.result import Result, figure
from ..introspect.graph import trace
from ..introspect.observe import check_readable, filled_batches, state_restored
from ..nn._pop import PopLayer
from ..surgery.placement import PRE_NORM, is_pre_norm
from .curvature.curvature import curvature
from .curvature.per_sample import Loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Slope(NamedTuple):
    """How the weight of one layer depends on the κ of the POP-Norm before it.

    Attributes:
        norm: name of the POP-Norm layer whose κ is varied.
        layer: name of the layer after it.
        largest: slope of log λ_max of its weight's Hessian block against log κ.
        variance: slope of log E‖∇f_i − ∇F‖² against log κ.
        eigenvalues: λ_max for each κ.
        variances: the variance for each κ.
    """

    norm: str
    layer: str
    largest: float | None
    variance: float | None
    eigenvalues: list[float]
    variances: list[float]


@dataclass(repr=False)
class KappaSlopes(Result):
    """What ``kappa_slopes`` found.

    Attributes:
        kappas: the divisors that were tried.
        slopes: one for each POP-Norm and each layer that it feeds.
    """

    kappas: list[float]
    slopes: list[Slope]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("κ of", "layer", "slope of λ max", "of variance", *[f"λ max, κ={kappa:g}" for kappa in self.kappas])

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each layer."""
        return [(*slope[:4], *slope.eigenvalues) for slope in self.slopes]

    def plot(self) -> Figure:
        """λ_max of each layer against κ, both logarithmic."""
        drawn = figure()
        axes = drawn.subplots()
        for slope in self.slopes:
            values = [value if value > 0 else math.nan for value in slope.eigenvalues]
            axes.loglog(self.kappas, values, "o-", label=slope.layer)
        axes.set_xlabel("κ of the POP-Norm before the layer")
        axes.set_ylabel("largest eigenvalue of the Hessian's block")
        axes.legend(title="layer")
        return drawn


def kappa_slopes(
    model: nn.Module,
    batches: Any,
    loss: Loss | None = None,
    kappas: Sequence[float] = (1.0, 4.0, 16.0),
    *,
    how: str = "auto",
    steps: int = 64,
    tolerance: float = 1e-4,
) -> KappaSlopes:
    """Slopes of sharpness and gradient noise against κ, for the weight after each POP-Norm of a model.

    Args:
        model: a model with POP-Norm layers before Linear or Conv layers. Each κ is varied on its own and then restored.
        batches: a batch or several, each (input, target).
        loss: ``loss(output, target)`` with one value per sample. Default: cross entropy.
        kappas: at least two divisors above 0.
        how, steps, tolerance: as in ``curvature``.

    Examples:
        >>> import torch, geonorm
        >>> from geonorm.analysis import kappa_slopes
        >>> model = torch.nn.Sequential(geonorm.PopNorm1d(4), torch.nn.Linear(4, 1)).double()
        >>> x, y = torch.randn(32, 4).double(), torch.randn(32, 1).double()
        >>> found = kappa_slopes(model, (x, y), lambda output, target: (output - target).square().sum(1))
        >>> [f"{slope.layer} {slope.largest:.2f}" for slope in found.slopes]
        ['1 -2.00']
    """
    check_readable(model, "measure the slopes of")
    modules = dict(model.named_modules())
    pairs = [(f"{layer}.{PRE_NORM}", layer) for layer, module in modules.items() if is_pre_norm(module)]
    pairs += [(name, layer) for name, near in trace(model).norms.items() for layer in near.after]
    pairs = [(name, layer) for name, layer in pairs if isinstance(modules[name], PopLayer)]
    if not pairs:
        raise ValueError(
            "expected POP-Norm layers before Linear or Conv layers (got none); geonorm.convert(model, 'pop') adds them"
        )
    if len(set(kappas)) < 2 or not all(0 < kappa < math.inf for kappa in kappas):
        raise ValueError(f"expected at least two different kappas above 0 (got {tuple(kappas)})")
    given = list(filled_batches(batches))
    slopes = []
    for norm, layer in pairs:
        weights = [p for p in modules[layer].parameters() if p.dim() > 1 and p.requires_grad]
        if not weights:
            continue
        blocks = []
        for kappa in kappas:
            with state_restored(model):
                model.requires_grad_(False)
                for weight in weights:
                    weight.requires_grad_()
                modules[norm].kappa = float(kappa)
                found = curvature(model, given, loss, how=how, where=lambda *_: False, steps=steps, tolerance=tolerance)
                blocks.append(found.blocks[0])
        eigenvalues = [math.nan if block.largest is None else block.largest for block in blocks]
        variances = [block.variance for block in blocks]
        slopes.append(
            Slope(norm, layer, _slope(kappas, eigenvalues), _slope(kappas, variances), eigenvalues, variances)
        )
    return KappaSlopes([float(kappa) for kappa in kappas], slopes)


def _slope(kappas: Sequence[float], values: Sequence[float]) -> float | None:
    """Least squares on logarithms; ``None`` if a value is not above 0."""
    if not all(0 < value < math.inf for value in values):
        return None
    x, y = [math.log(kappa) for kappa in kappas], [math.log(value) for value in values]
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
