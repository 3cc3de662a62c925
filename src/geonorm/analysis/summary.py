"""``summary``: every norm of a model, one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from ..html.result import Result, figure
from ..introspect.axes import UNITS
from ..introspect.known_invariances import known_units
from ..introspect.layouts import is_ours, keeps_statistics
from ..introspect.observe import Forward, check_readable
from .diagnose.evaluation import mismatch
from .diagnose.observations import gamma_of, never_measured
from .readings import NormReading, Readings
from .sphere import collapsed_channels
from .watch import read

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class SummaryLine:
    """One norm.

    Attributes:
        name: its name in the model.
        kind: its class.
        channels: number of channels or features; ``None`` if unknown.
        over: the values normalized together: a channel (over the batch), a sample, a group or a channel of a sample.
        values: their typical number.
        center: the subtracted statistic: the mean, or the center of an exponent φ; ``"none"`` for RMSNorm.
        spread: the statistic in the divisor.
        gamma: smallest and largest |γ|; ``None`` without γ.
        dead: channels whose output is constant, or 0 after the ReLU; ``None`` if that was not measured.
        staleness: how far its output in evaluation is from training, in units of γ; ``None`` without running
            statistics.
        invariant: which sizes in the operation before it have no effect on the output in training: of each row, of each
            group, or of the whole weight; empty if none is known.
        pulled: samples that its guard has pulled in so far; ``None`` without a guard.
    """

    name: str
    kind: str
    channels: int | None
    over: str
    values: int
    center: str
    spread: str
    gamma: tuple[float, float] | None
    dead: int | None
    staleness: float | None
    invariant: str
    pulled: int | None


@dataclass(repr=False)
class Summary(Result):
    """What ``summary`` found: a line for each norm, and the number of samples."""

    lines: list[SummaryLine]
    samples: int

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        shown = "norm,kind,channels,one group,values,center,spread,|γ|,dead,stale,invariant,pulled"
        return shown.split(",")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each norm."""
        return [
            (
                line.name,
                line.kind,
                line.channels,
                line.over,
                line.values,
                line.center,
                line.spread,
                _range(line.gamma),
                line.dead,
                line.staleness if line.staleness is None else float(f"{line.staleness:.2g}"),
                line.invariant,
                line.pulled,
            )
            for line in self.lines
        ]

    def plot(self) -> Figure:
        """The range of |γ| in each norm."""
        drawn = figure(7.0, 1.0 + 0.25 * max(len(self.lines), 4))
        axes = drawn.subplots()
        for place, line in enumerate(self.lines):
            if line.gamma is not None:
                axes.plot(line.gamma, [place, place], "o-", color="tab:blue")
        axes.set_yticks(range(len(self.lines)), [line.name for line in self.lines])
        axes.set_xlabel("|γ|")
        axes.invert_yaxis()
        return drawn


def summary(model: nn.Module, batches: Any, forward: Forward | None = None) -> Summary:
    """Every norm of a model, one line each: the values it normalizes together, its statistics and its state.

    Runs the batches once, with the statistics of each batch. The model is not changed.

    Args:
        model: any model, in any mode.
        batches: a batch or an iterable of batches. A batch is a tensor, a tuple whose first entry is the input, or a
            dict of the model's arguments.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the input.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.LayerNorm(6))
        >>> (first, second) = geonorm.summary(model, torch.randn(32, 4)).lines
        >>> first.over, first.values, first.invariant
        ('channel', 32, 'rows of 0')
        >>> second.over, second.values, second.center
        ('sample', 6, 'mean')
    """
    check_readable(model, "summarize")
    readings = read(model, batches, forward)
    invariant = _invariances(model, readings)
    return Summary(
        [_line(r, readings, invariant.get(name, "")) for name, r in readings.norms.items()], readings.samples
    )


def _line(reading: NormReading, readings: Readings, invariant: str) -> SummaryLine:
    norm: Any = reading.norm
    gamma = gamma_of(norm)
    shape = getattr(norm, "normalized_shape", None)
    channels = getattr(norm, "num_features", getattr(norm, "num_channels", getattr(norm, "in_channels", None)))
    counts = getattr(norm, "guard_counts", None)
    return SummaryLine(
        reading.name,
        type(norm).__name__,
        channels if shape is None else math.prod(shape),
        UNITS.get(reading.axes or "", "unknown"),
        reading.values,
        _center(norm),
        _spread(norm),
        None if gamma is None else (float(gamma.min()), float(gamma.max())),
        _dead(reading, readings),
        mismatch(reading) if keeps_statistics(norm) and not never_measured(norm) and reading.moments.batches else None,
        invariant,
        None if counts is None else int(counts[2]),
    )


def _center(norm: Any) -> str:
    if isinstance(norm, nn.RMSNorm) or getattr(norm, "center", True) is False:
        return "none"
    phi = getattr(norm, "phi", 2.0) if is_ours(norm) else 2.0
    learned = getattr(norm, "phi_offset", None) is not None
    if learned:
        values = norm.phi.detach().flatten() if hasattr(norm.phi, "detach") else None
        return "φ learned" if values is None else f"φ {float(values.min()):.2g}–{float(values.max()):.2g}, learned"
    return {1.0: "median", 2.0: "mean", math.inf: "midrange"}.get(float(phi), f"φ={float(phi):g}")


def _spread(norm: Any) -> str:
    spread = str(getattr(norm, "spread", "rms")).replace("_", " ")
    guard = getattr(norm, "guard", None)
    return spread if guard is None else f"{spread}, guard {guard:g}"


def _dead(reading: NormReading, readings: Readings) -> int | None:
    if reading.axes != "batch" or not reading.moments.batches or reading.values < 3:
        return None
    dead = set(collapsed_channels(reading))
    relu = readings.relus.get(reading.name)
    if relu is not None:
        dead |= {int(c) for c in (~relu.alive).nonzero().flatten()}
    return len(dead)


def _invariances(model: nn.Module, readings: Readings) -> dict[str, str]:
    """For each norm, which sizes in the operation before it have no effect."""
    known = known_units(model, readings.graph, as_trained=not model.training)
    by_operation = {
        name.rsplit(".parametrizations", 1)[0].removesuffix(".weight"): unit for name, unit in known.items()
    }
    found = {}
    for name, near in readings.graph.norms.items():
        unit = by_operation.get(near.before or "")
        if unit is not None and near.before is not None:
            found[name] = f"{unit.kind}s of {near.before}" if unit.kind != "matrix" else near.before
    return found


def _range(gamma: tuple[float, float] | None) -> str | None:
    if gamma is None:
        return None
    low, high = gamma
    return f"{low:.2g}" if low == high else f"{low:.2g}–{high:.2g}"
