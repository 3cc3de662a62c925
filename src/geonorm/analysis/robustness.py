"""``robustness``: accuracy on clean inputs, under noise and under attacks, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..html.result import Result, figure
from ..introspect.observe import check_readable, filled_batches, labelled, state_restored
from ..introspect.progress import progress
from ..robust.accuracy import Accuracy, count_correct, wilson
from ..robust.attacks import bim, fgsm, pgd
from ..robust.noise import gaussian_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TESTS = ("clean", "noise", "fgsm", "bim", "pgd")


class Trial(NamedTuple):
    """Accuracy in one test.

    Attributes:
        test: ``"clean"``, ``"noise"``, ``"fgsm"``, ``"bim"`` or ``"pgd"``.
        size: standard deviation of the noise, or largest change by the attack.
        accuracy: with Wilson's interval.
    """

    test: str
    size: float
    accuracy: Accuracy


@dataclass(repr=False)
class Robustness(Result):
    """What ``robustness`` found.

    Attributes:
        trials: one per test.
        confidence: of the intervals.
    """

    trials: list[Trial]
    confidence: float

    def __getitem__(self, test: str) -> Accuracy:
        return {trial.test: trial.accuracy for trial in self.trials}[test]

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("test", "size", "accuracy", "from", "to", "correct", "of")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each test."""
        return [
            (t.test, t.size, t.accuracy.share, t.accuracy.low, t.accuracy.high, t.accuracy.correct, t.accuracy.total)
            for t in self.trials
        ]

    def plot(self) -> Figure:
        """Accuracies with their intervals."""
        drawn = figure(5.0, 3.0)
        axes = drawn.subplots()
        for place, (test, _, found) in enumerate(self.trials):
            axes.errorbar(
                [found.share], [place], xerr=[[found.share - found.low], [found.high - found.share]], fmt="o", capsize=4
            )
            axes.annotate(test, (found.share, place), xytext=(0, 6), textcoords="offset points", ha="center")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(len(self.trials) - 0.5, -0.7)
        axes.set_yticks([])
        axes.set_xlabel(f"accuracy, {self.confidence:.0%} intervals")
        return drawn


def robustness(
    model: nn.Module,
    batches: Any,
    tests: Sequence[str] = ("clean", "noise", "fgsm", "bim"),
    *,
    noise: float = 0.25,
    eps: float = 8 / 255,
    step: float = 2 / 255,
    steps: int = 10,
    between: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    seed: int = 0,
    backend: str = "auto",
) -> Robustness:
    """Accuracy of a classifier on clean, noisy and attacked inputs, with Wilson intervals.

    In evaluation, with running statistics. Inputs are raw images, in the range ``between``: put
    ``geonorm.robust.Standardize`` before a model that expects standardized inputs. Scores that are not finite count as
    wrong.

    Args:
        model: returns scores ``(N, classes)``; its mode is kept.
        batches: a batch or several, each (input, labels).
        tests: which of ``"clean"``, ``"noise"``, ``"fgsm"``, ``"bim"``, ``"pgd"``.
        noise: standard deviation of the Gaussian noise, which is not clipped.
        eps: largest change of a value by the attacks.
        step, steps: size and number of the steps of BIM and PGD.
        between: range of valid inputs.
        confidence: of the intervals.
        seed: of the noise and of PGD's random start; torch's random state is not changed.
        backend: of the attacks, ``"auto"``, ``"torchattacks"`` or ``"own"``.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import robustness
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
        >>> found = robustness(model, (torch.rand(50, 4), torch.zeros(50, dtype=torch.long)))
        >>> [trial.test for trial in found.trials]
        ['clean', 'noise', 'fgsm', 'bim']
        >>> found["bim"].share <= found["clean"].share
        True
    """
    check_readable(model, "test the robustness of")
    unknown = [test for test in tests if test not in TESTS]
    if unknown or not tests:
        raise ValueError(f"expected tests out of {TESTS} (got {tuple(tests)})")
    many: dict[str, Any] = {"step": step, "steps": steps, "between": between, "backend": backend}
    change: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "clean": lambda x, labels: x,
        "noise": lambda x, labels: gaussian_noise(x, noise),
        "fgsm": lambda x, labels: fgsm(model, x, labels, eps, between=between, backend=backend),
        "bim": lambda x, labels: bim(model, x, labels, eps, **many),
        "pgd": lambda x, labels: pgd(model, x, labels, eps, **many),
    }
    correct, total = dict.fromkeys(tests, 0), 0
    home = next(iter(model.parameters()), torch.empty(0)).device
    with state_restored(model), torch.no_grad():
        model.eval()
        for number, batch in enumerate(progress(filled_batches(batches), "robustness")):
            x, labels = (part.to(home) for part in labelled(batch))
            total += len(labels)
            for test in tests:
                # Each test has its own seed, so that its draws do not depend on the other tests.
                torch.manual_seed(((seed * 1_000_003 + number) * len(TESTS) + TESTS.index(test)) % 2**63)
                correct[test] += count_correct(model(change[test](x, labels)), labels)
    sizes = {"clean": 0.0, "noise": noise}
    trials = [Trial(test, sizes.get(test, eps), wilson(correct[test], total, confidence)) for test in tests]
    return Robustness(trials, confidence)
