"""``invariance``: which weights are scale invariant, and in which unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from ..html.result import Result, figure
from ..introspect.invariance import Unit, measure_invariance
from ..introspect.observe import Forward

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Invariance(Result):
    """What ``invariance`` found.

    Attributes:
        units: the weights that are scale invariant.
        others: names of weights whose size matters.
        idle: names of weights that have no effect on the outputs.
    """

    units: list[Unit]
    others: list[str]
    idle: list[str]

    def surprises(self) -> list[Unit]:
        """Units whose kind or bias differs from the known table."""
        return [
            unit
            for unit in self.units
            if unit.expected is not None and (unit.expected, unit.expected_bias) != (unit.kind, unit.bias)
        ]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("weight", "invariant per", "parts", "change", "with eps", "⟨w, ∇w⟩", "with bias", "table")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each weight, including those that are not invariant."""
        found = [
            (u.parameter, u.kind, u.groups, u.change, u.eps_change, u.product, u.bias, u.expected) for u in self.units
        ]
        rest = [(name, "no", None, None, None, None, None, None) for name in self.others]
        return [*found, *rest, *[(name, "no effect", None, None, None, None, None, None) for name in self.idle]]

    def plot(self) -> Figure:
        """Change and product of each unit on a logarithmic axis."""
        drawn = figure(7.0, 1.0 + 0.25 * max(len(self.units), 4))
        axes = drawn.subplots()
        places = range(len(self.units))
        for label, values in (
            ("change of the outputs", [unit.change for unit in self.units]),
            ("change with the model's eps", [unit.eps_change for unit in self.units]),
            ("⟨w, ∇w⟩", [unit.product for unit in self.units]),
        ):
            axes.plot([max(value, 1e-18) for value in values], places, "o", label=label)
        axes.set_yticks(list(places), [f"{unit.parameter} ({unit.kind})" for unit in self.units])
        axes.set_xscale("log")
        axes.set_xlim(1e-18, 1)
        axes.invert_yaxis()
        axes.legend(loc="lower right")
        return drawn


def invariance(
    model: nn.Module, batches: Any, forward: Forward | None = None, *, samples: int = 8, tolerance: float = 1e-4
) -> Invariance:
    """Which weights are scale invariant, and in which unit: each row, groups of rows, or only as a whole.

        f(λ·w) = f(w) for λ > 0,  and so ⟨w, ∇f(w)⟩ = 0

    Found by scaling weights and comparing outputs: on a copy in float64, without eps, with norms in training mode and
    everything else in evaluation. A weight that is not invariant alone is tried together with its module's bias.
    Parameters of one dimension (biases, γ) are not tested.

    Args:
        model: any model, in any mode; it is not changed.
        batches: a batch or an iterable of batches; only the first is used. A batch is a tensor, or a tuple whose first
            entry is the input.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the input.
        samples: how many samples of the batch are used, unless ``forward`` is given; invariances do not
            depend on it, and every weight takes at least four passes.
        tolerance: the largest ``change`` that counts as no change.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import invariance
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
        >>> found = invariance(model, torch.randn(16, 4))
        >>> [(unit.parameter, unit.kind, unit.groups) for unit in found.units], found.others
        ([('0.weight', 'row', 6)], ['2.weight'])
    """
    return Invariance(*measure_invariance(model, batches, forward, samples=samples, tolerance=tolerance))
