"""Curves over epochs: the mean over seeds, and a band of one standard deviation to each side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..recipe import Run
from ..statistics import summarize
from .contents import Contents

_FLAT = 0.1  # of the height of a picture


class Line(NamedTuple):
    """One curve; None where no run has a figure.

    Attributes:
        name: of the norm, or of the layer.
        mean: over runs, epoch by epoch.
        deviation: over runs; 0 for one run.
    """

    name: str
    mean: list[float | None]
    deviation: list[float]


class View(NamedTuple):
    """Curves that are drawn together.

    Attributes:
        condition: the loss and corruption of the training.
        shows: the quantity, with its unit.
        span: the axis covers at least this much, so that tiny changes do not fill the picture.
        lines: the curves.
    """

    condition: str
    shows: str
    span: float
    lines: list[Line]

    @property
    def title(self) -> str:
        """A title for the picture."""
        return f"{self.condition}: {self.shows}"


def learning(contents: Contents) -> list[View]:
    """Test accuracy and training loss of all norms, for every loss and corruption."""
    views = []
    for shows, figure, factor, span in (
        ("test accuracy (%)", "accuracy", 100.0, 1.0),
        ("training loss", "loss", 1.0, 0.01),
    ):
        for condition, runs in _conditions(contents).items():
            lines = []
            for norm in contents.norms:
                curves = [contents.curves[run.key] for run in runs if run["norm"] == norm]
                lines.append(_line(norm, [[factor * epoch[figure] for epoch in curve] for curve in curves]))
            views.append(View(condition, shows, span, [line for line in lines if set(line.mean) - {None}]))
    return [view for view in views if view.lines]


def is_flat(view: View) -> bool:
    """Whether a picture shows nothing after the first half: no curve moves there, and none is apart from the others.

    All that happens there would fill less than a tenth of its height.
    """
    means = [[value for value in line.mean if value is not None] for line in view.lines]
    late = [value for curve in means for value in curve[len(curve) // 2 :]]
    everything = [value for curve in means for value in curve]
    return bool(late) and max(late) - min(late) < _FLAT * max(max(everything) - min(everything), view.span)


def exponents(contents: Contents) -> list[View]:
    """The learned φ of every layer, for every norm that learns it."""
    views = []
    for condition, runs in _conditions(contents).items():
        for norm in contents.norms:
            curves = [contents.curves[run.key] for run in runs if run["norm"] == norm]
            curves = [curve for curve in curves if curve and "phi" in curve[0]]
            layers = dict.fromkeys(layer for curve in curves for layer in curve[0]["phi"])
            lines = [_line(layer, [[epoch["phi"][layer] for epoch in curve] for curve in curves]) for layer in layers]
            if lines:
                views.append(View(condition, f"φ of {norm}", 0.2, lines))
    return views


def _conditions(contents: Contents) -> dict[str, list[Run]]:
    """The runs by loss and corruption, named by the one that differs."""
    runs = contents.comparison.runs
    varies = [name for name in ("loss", "corruption") if len({run[name] for run in runs}) > 1] or ["corruption"]
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(", ".join(run[name] for name in varies), []).append(run)
    return found


def _line(name: str, curves: Sequence[Sequence[float]]) -> Line:
    """The mean and the deviation; unfinished runs may be shorter than others."""
    means: list[float | None] = []
    deviations = []
    for epoch in range(max(map(len, curves), default=0)):
        found = summarize(curve[epoch] for curve in curves if epoch < len(curve))
        means.append(found.mean if found.number else None)
        deviations.append(found.deviation if found.number > 1 else 0.0)
    return Line(name, means, deviations)
