"""``kappa_slopes``: what POP-Norm's divisor κ does to the curvature.

The divisor scales what the next layer sees: F_κ(w) = F(w/κ), so its gradients go with 1/κ and its Hessian with 1/κ².
But a layer followed by a positively homogeneous activation and another POP-Norm has an output whose scale is divided
away again: the loss does not depend on κ there at all. So slopes are −2 for the last layer and 0 for interior layers
with ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from ..nn._pop import PopLayer
from .curvature import Curvature, curvature
from .observe import check_readable, filled_batches, undisturbed
from .per_sample import Loss
from .result import Result, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Slope(NamedTuple):
    """How one layer depends on κ.

    Attributes:
        name: of the layer; ``"(all)"`` for all parameters together.
        largest: slope of log λ_max of its Hessian block against log κ.
        variance: slope of log E‖∇f_i − ∇F‖² against log κ.
    """

    name: str
    largest: float | None
    variance: float | None


@dataclass
class KappaSlopes(Result):
    """What ``kappa_slopes`` found.

    Attributes:
        kappas: the divisors that were tried.
        curvatures: what was measured for each.
        slopes: for all parameters together, then layer by layer.
    """

    kappas: list[float]
    curvatures: list[Curvature]
    slopes: list[Slope]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        values = [f"λ max, κ={kappa:g}" for kappa in self.kappas]
        return ("layer", "slope of λ max", "slope of variance", *values)

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each layer."""
        return [
            (*slope, *[found.blocks[i].largest for found in self.curvatures]) for i, slope in enumerate(self.slopes)
        ]

    def plot(self) -> Figure:
        """λ_max of each layer against κ, both logarithmic."""
        drawn = figure()
        axes = drawn.subplots()
        for i, slope in enumerate(self.slopes):
            values = [found.blocks[i].largest or math.nan for found in self.curvatures]
            axes.loglog(self.kappas, values, "o-", label=slope.name)
        axes.set_xlabel("κ")
        axes.set_ylabel("largest eigenvalue of the Hessian's block")
        axes.legend()
        return drawn


def kappa_slopes(
    model: nn.Module, batches: Any, loss: Loss | None = None, kappas: Sequence[float] = (1.0, 4.0, 16.0), **options: Any
) -> KappaSlopes:
    """Slopes of the curvature against κ when all POP-Norm layers of a model get the same κ.

    Args:
        model: a model with POP-Norm layers; their κ is put back afterwards.
        batches: a batch or several, each (input, target).
        loss: ``loss(output, target)`` with one value per sample. Default: cross entropy.
        kappas: at least two divisors above 0.
        options: of ``curvature``.

    Examples:
        >>> import torch, geonorm
        >>> from geonorm.analysis import kappa_slopes
        >>> model = torch.nn.Sequential(geonorm.PopNorm1d(4), torch.nn.Linear(4, 1, bias=False)).double()
        >>> x, y = torch.randn(32, 4).double(), torch.randn(32, 1).double()
        >>> found = kappa_slopes(model, (x, y), lambda output, target: (output - target).square().sum(1))
        >>> [f"{slope.name} {slope.largest:.2f}" for slope in found.slopes if slope.name == "1"]
        ['1 -2.00']
    """
    check_readable(model, "read the slopes of")
    layers = [module for module in model.modules() if isinstance(module, PopLayer)]
    if not layers:
        raise ValueError("expected a model with POP-Norm layers (got none); geonorm.convert(model, 'pop') puts them in")
    if len(set(kappas)) < 2 or not all(0 < kappa < math.inf for kappa in kappas):
        raise ValueError(f"expected at least two different kappas above 0 (got {tuple(kappas)})")
    given = list(filled_batches(batches))
    found = []
    for kappa in kappas:
        with undisturbed(model):
            for layer in layers:
                layer.kappa = float(kappa)
            found.append(curvature(model, given, loss, **options))
    names = [block.name for block in found[0].blocks]
    slopes = [
        Slope(
            name,
            _slope(kappas, [result.blocks[i].largest for result in found]),
            _slope(kappas, [result.blocks[i].variance for result in found]),
        )
        for i, name in enumerate(names)
    ]
    return KappaSlopes([float(kappa) for kappa in kappas], found, slopes)


def _slope(kappas: Sequence[float], values: Sequence[float | None]) -> float | None:
    """Least squares on logarithms; ``None`` if a value is not above 0."""
    if not all(value is not None and 0 < value < math.inf for value in values):
        return None
    x = [math.log(kappa) for kappa in kappas]
    y = [math.log(value) for value in values if value is not None]
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
