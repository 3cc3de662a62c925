"""Charts of the page that need no script: every run as a dot, differences to the baseline, the cost of a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from ...html.charts import svg_figure
from ...html.palette import looks
from ..results import Column, Pair
from .contents import Contents, costs, step
from .labels import display_name, signed
from .tables import bytes_text

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 360, 112, 48, 21, 8


def runs(contents: Contents, column: Column) -> str:
    """Every run as a dot, in a row for each norm: a tick is the mean, a ring the worst, with its value on the right."""
    found = {norm: one for norm, one in contents.runs[column].items() if one.accuracies}
    if not found:
        return ""
    values = [value for one in found.values() for value in one.accuracies.values()]
    axis = _Axis(min(values), max(values), 100.0)
    bottom = _TOP + _ROW * len(found)
    parts = []
    for i, (norm, one) in enumerate(found.items()):
        y, colour = _TOP + _ROW * (i + 0.5), _colour(contents, norm)
        parts += [
            f'<circle class="run {colour}" cx="{axis.x(value):.1f}" cy="{y}" r="3.5">'
            f"<title>{escape(f'{norm}, {_named(pair)}: {value:.1f} %')}</title></circle>"
            for pair, value in one.accuracies.items()
        ]
        if len(one.accuracies) > 1:
            mean = axis.x(contents.verdicts[column].summaries[norm].mean)
            parts.append(f'<line class="mean {colour}" x1="{mean:.1f}" x2="{mean:.1f}" y1="{y - 8}" y2="{y + 8}"/>')
            parts.append(f'<circle class="worst" cx="{axis.x(one.worst):.1f}" cy="{y}" r="6"/>')
        parts.append(f"{_name(norm, y)}{_at_the_end(f'{one.worst:.1f}', y)}")
    title = "every run, in %; the worst is ringed, with its value on the right"
    return svg_figure(
        title, axis.drawn(bottom, "{:g}".format) + "".join(parts), _WIDTH, bottom + 18, caption_above=True
    )


def differences(contents: Contents, column: Column) -> str:
    """The difference of every norm to the baseline, in points, with its 95 % interval."""
    gaps = {norm: gap for norm, gap in contents.verdicts[column].to_baseline.items() if gap.number}
    if not gaps:
        return ""
    ends = [end for gap in gaps.values() for end in (gap.mean, gap.low, gap.high) if not math.isnan(end)]
    axis = _Axis(min(*ends, 0.0), max(*ends, 0.0))
    bottom = _TOP + _ROW * len(gaps)
    parts = [f'<line class="reference" x1="{axis.x(0):.1f}" x2="{axis.x(0):.1f}" y1="{_TOP}" y2="{bottom}"/>']
    for i, (norm, gap) in enumerate(gaps.items()):
        y, colour = _TOP + _ROW * (i + 0.5), _colour(contents, norm)
        if not math.isnan(gap.low):
            x1, x2 = axis.x(gap.low), axis.x(gap.high)
            parts.append(f'<line class="interval {colour}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<circle class="point {colour}" cx="{axis.x(gap.mean):.1f}" cy="{y}" r="4"/>'
            f"{_name(norm, y)}{_at_the_end(signed(gap.mean), y)}"
        )
    title = f"points above or below {display_name(contents.baseline)}, 95 % interval"
    inside = axis.drawn(bottom, lambda value: f"{value:+g}".replace("-", "−") if value else "0") + "".join(parts)
    return svg_figure(title, inside, _WIDTH, bottom + 18, caption_above=True)


def cost(contents: Contents) -> list[str]:
    """Time and memory of a training step as multiples of the baseline's; the range of the time over runs is a line."""
    found, own = costs(contents), step(contents)
    if len(found) < 2:
        return []
    base = display_name(contents.baseline)
    times = {norm: (one.median, one.low, one.high) for norm, one in found.items()}
    known = f" = {own.milliseconds:.3g} ms" if own.milliseconds else " = 1"
    drawn = [_bars(f"Time of a training step, {base}{known}", times)]
    memory = {norm: (one.memory, one.memory, one.memory) for norm, one in found.items() if not math.isnan(one.memory)}
    if memory and own.bytes_kept:
        drawn.append(_bars(f"Memory kept for the backward pass, {base} = {bytes_text(own.bytes_kept)}", memory))
    return drawn


def _bars(title: str, ratios: dict[str, tuple[float, float, float]]) -> str:
    scale = (_WIDTH - _LEFT - _RIGHT) / max(high for _, _, high in ratios.values())
    bottom = _TOP + _ROW * len(ratios)
    parts = []
    for i, (norm, of) in enumerate(ratios.items()):
        y = _TOP + _ROW * (i + 0.5)
        middle, low, high = (_LEFT + scale * value for value in of)
        parts.append(f'<rect class="bar" x="{_LEFT}" y="{y - 7}" width="{middle - _LEFT:.1f}" height="14"/>')
        if high > low:
            parts.append(f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f"{_name(norm, y)}{_at_the_end(f'×{of[0]:.2f}', y)}")
    x = _LEFT + scale
    parts.append(f'<line class="reference" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
    return svg_figure(title, "".join(parts), _WIDTH, bottom + 4, caption_above=True)


class _Axis:
    """A horizontal axis from a round number below the values to one above, but no farther than a limit."""

    def __init__(self, low: float, high: float, limit: float = math.inf) -> None:
        distance = max(high - low, 0.5)
        power = 10.0 ** math.floor(math.log10(distance))
        step = next(power * part for part in (5.0, 2.0, 1.0, 0.5, 0.2) if distance >= 3 * power * part)
        self.low, self.high = math.floor(low / step) * step, min(math.ceil(high / step) * step, limit)
        if self.low == self.high:
            self.low -= step
        ticks = range(round(self.low / step), math.floor(self.high / step + 1e-9) + 1)
        self.ticks = [tick * step for tick in ticks]

    def x(self, value: float) -> float:
        """The place of a value."""
        return _LEFT + 6 + (value - self.low) / (self.high - self.low) * (_WIDTH - _LEFT - _RIGHT - 12)

    def drawn(self, bottom: float, text: Callable[[float], str]) -> str:
        """The axis with its numbers, and a thin line for each."""
        lines = "".join(
            f'<line class="grid" x1="{self.x(tick):.1f}" x2="{self.x(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
            f'<text x="{self.x(tick):.1f}" y="{bottom + 13}" text-anchor="middle">{text(round(tick, 6))}</text>'
            for tick in self.ticks
        )
        return f'{lines}<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'


def _colour(contents: Contents, norm: str) -> str:
    colour = looks(contents.norms, contents.baseline)[norm].colour
    return "base" if colour is None else f"c{colour}"


def _named(pair: Pair) -> str:
    return f"seed {pair.seed}" + ("" if pair.fold is None else f", fold {pair.fold}")


def _at_the_end(text: str, y: float) -> str:
    return f'<text x="{_WIDTH}" y="{y + 4}" text-anchor="end">{text}</text>'


def _name(norm: str, y: float) -> str:
    short = norm if len(norm) <= 16 else norm[:15] + "…"
    return f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end"><title>{escape(norm)}</title>{escape(short)}</text>'
