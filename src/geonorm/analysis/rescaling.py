"""``rescaling``: do large weights make a network vulnerable? Not if they are scale invariant.

A published claim is that growing weights amplify attacks. Here all scale-invariant weights are made ten times smaller
and larger: scores, input gradients and accuracy under attack stay the same, up to the effect of eps in the norms. That
leaves γ, and weights without a norm after them, as possible causes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..html.result import Result, figure
from ..introspect.invariance import Unit
from ..introspect.observe import as_double, check_readable, double_copy, filled_batches, labelled, random_state_restored
from ..introspect.scale_parts import parts_of, rescale
from ..robust.accuracy import Accuracy, check_scores, count_correct, wilson
from ..robust.attacks import bim
from ..surgery.recalibrate import recalibrate
from .invariance import invariance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WITHOUT_EPS = 1e-12


class Rescaled(NamedTuple):
    """The network with its scale-invariant weights times a factor, compared with the original.

    Attributes:
        factor: of the weights.
        has_eps: whether the norms have their original eps, or a trillionth of it.
        scores: relative change of the scores.
        gradient: relative change of the loss's gradients with respect to the inputs.
        clean, attacked: accuracy on the inputs, and under BIM.
    """

    factor: float
    has_eps: bool
    scores: float
    gradient: float
    clean: Accuracy
    attacked: Accuracy


@dataclass(repr=False)
class Rescaling(Result):
    """What ``rescaling`` found.

    Attributes:
        weights: names of the weights that were scaled.
        cases: factor 1 first, with and without eps.
    """

    weights: list[str]
    cases: list[Rescaled]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("factor", "eps", "change of scores", "of the input gradient", "accuracy", "under BIM", "from", "to")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each case."""
        return [
            (*case[:4], case.clean.share, case.attacked.share, case.attacked.low, case.attacked.high)
            for case in self.cases
        ]

    def plot(self) -> Figure:
        """Accuracy under attack against the factor, and the changes."""
        drawn = figure(9.0, 3.5)
        panels: Any = drawn.subplots(1, 2)
        for has_eps, label in ((True, "original eps"), (False, "without eps")):
            cases = sorted(case for case in self.cases if case.has_eps == has_eps)
            factors = [case.factor for case in cases]
            panels[0].semilogx(factors, [case.attacked.share for case in cases], "o-", label=label)
            panels[1].loglog(factors, [max(case.gradient, 1e-18) for case in cases], "o-", label=label)
        panels[0].set_ylabel("accuracy under BIM")
        panels[0].set_ylim(0, 1)
        panels[1].set_ylabel("change of the input gradient")
        for axes in panels:
            axes.set_xlabel("factor of all scale-invariant weights")
            axes.legend()
        return drawn


def rescaling(
    model: nn.Module,
    batches: Any,
    factors: Sequence[float] = (0.1, 10.0),
    *,
    units: Iterable[Unit] | None = None,
    eps: float = 8 / 255,
    step: float = 2 / 255,
    steps: int = 10,
    between: tuple[float, float] = (0.0, 1.0),
) -> Rescaling:
    """Changes of scores, input gradients and accuracy under attack when all scale-invariant weights are scaled.

    On copies in float64, in evaluation, with running statistics recomputed from the batches, since those of smaller
    weights are smaller. Each factor is tried with the original eps and with almost none.

    Args:
        model: a classifier with scale-invariant weights; it is not changed.
        batches: a batch or several, each (input, labels).
        factors: of the weights, above 0; 1 is added.
        units: the result of ``invariance``; computed by default.
        eps, step, steps, between: of the attack, as in ``geonorm.robust.bim``.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import rescaling
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2))
        >>> found = rescaling(model, (torch.rand(50, 4), torch.arange(50) % 2))
        >>> max(case.gradient for case in found.cases if not case.has_eps) < 1e-9
        True
    """
    check_readable(model, "rescale the weights of")
    given = [as_double(labelled(batch)) for batch in filled_batches(batches)]
    if not all(0 < factor < math.inf for factor in factors):
        raise ValueError(f"expected factors above 0 (got {tuple(factors)})")
    parts = parts_of(invariance(model, given).units if units is None else units)
    if not parts:
        raise ValueError("expected scale-invariant weights to rescale (got none); see geonorm.analysis.invariance")
    attack: dict[str, Any] = {"eps": eps, "step": step, "steps": steps, "between": between, "backend": "own"}
    cases = []
    with random_state_restored(model):
        for has_eps in (True, False):
            plain: _Answers | None = None
            for factor in dict.fromkeys((1.0, *map(float, factors))):
                twin = double_copy(model, 1.0 if has_eps else _WITHOUT_EPS)
                rescale(twin, parts, factor)
                found = _measure(twin, given, attack)
                plain = plain or found
                changes = (_change(found.scores, plain.scores), _change(found.gradient, plain.gradient))
                cases.append(Rescaled(factor, has_eps, *changes, found.clean, found.attacked))
    return Rescaling([part.parameter for part in parts], cases)


class _Answers(NamedTuple):
    scores: Tensor
    gradient: Tensor
    clean: Accuracy
    attacked: Accuracy


def _measure(twin: nn.Module, batches: Sequence[tuple[Tensor, Tensor]], attack: dict[str, Any]) -> _Answers:
    recalibrate(twin, batches)
    twin.eval().requires_grad_(False)
    home = next(iter(twin.parameters())).device
    scores, gradients, clean, attacked, total = [], [], 0, 0, 0
    for batch in batches:
        x, labels = (part.to(home) for part in batch)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            answer = twin(leaf)
            check_scores(answer, labels)
            (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(answer, labels, reduction="sum"), leaf)
        scores.append(answer.detach().flatten())
        gradients.append(gradient.flatten())
        with torch.no_grad():
            clean += count_correct(answer, labels)
            attacked += count_correct(twin(bim(twin, x, labels, **attack)), labels)
        total += len(labels)
    return _Answers(torch.cat(scores), torch.cat(gradients), wilson(clean, total), wilson(attacked, total))


def _change(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())
