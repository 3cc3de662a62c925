"""Charts of the page that need no script: accuracies with their intervals, and the cost of a step."""

from __future__ import annotations

import math
from html import escape

from ...html.charts import svg_figure
from ...html.palette import looks
from ..results import Column
from .contents import Contents, clipped_interval, costs

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 360, 112, 42, 21, 8


def accuracies(contents: Contents, column: Column) -> str:
    """The mean of every norm and its 95 % interval, the best at the top."""
    verdict = contents.verdicts[column]
    found = sorted(
        ((norm, one) for norm, one in verdict.summaries.items() if one.number), key=lambda entry: -entry[1].mean
    )
    if not found:
        return ""
    ends = [value for _, one in found for value in (one.mean, *clipped_interval(one)) if not math.isnan(value)]
    low, high = min(ends), max(ends)
    scale = (_WIDTH - _LEFT - _RIGHT) / ((high - low) or 1.0)

    def place(value: float) -> float:
        return _LEFT + (value - low) * scale

    look = looks(contents.norms, contents.baseline)
    bottom = _TOP + _ROW * len(found)
    parts = []
    if verdict.summaries[contents.baseline].number:
        x = place(verdict.summaries[contents.baseline].mean)
        parts.append(f'<line class="reference" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
    for i, (norm, one) in enumerate(found):
        y = _TOP + _ROW * (i + 0.5)
        colour = f"c{look[norm].colour}" if look[norm].colour is not None else "base"
        if one.number > 1:
            x1, x2 = map(place, clipped_interval(one))
            parts.append(f'<line class="interval {colour}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<circle class="mean {colour}" cx="{place(one.mean):.1f}" cy="{y}" r="4"/>{_name(norm, y)}'
            f'<text x="{_WIDTH}" y="{y + 4}" text-anchor="end">{one.mean:.1f}</text>'
        )
    ticks = "".join(
        f'<text x="{place(value):.1f}" y="{bottom + 13}" text-anchor="{anchor}">{value:.1f}</text>'
        for value, anchor in ((low, "start"), (high, "end"))
        if high > low
    )
    axis = f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    title, inside = f"{contents.labels[column]}: accuracy (%)", f"{axis}{''.join(parts)}{ticks}"
    return svg_figure(title, inside, _WIDTH, bottom + 18, caption_above=True)


def cost(contents: Contents) -> str:
    """Time per training step as a multiple of the baseline's, with the range over runs."""
    found = costs(contents)
    if len(found) < 2:
        return ""
    scale = (_WIDTH - _LEFT - _RIGHT) / max(one.high for one in found.values())
    bottom = _TOP + _ROW * len(found)
    parts = []
    for i, (norm, one) in enumerate(found.items()):
        y = _TOP + _ROW * (i + 0.5)
        low, middle, high = (_LEFT + scale * value for value in (one.low, one.median, one.high))
        parts.append(
            f'<rect class="bar" x="{_LEFT}" y="{y - 7}" width="{middle - _LEFT:.1f}" height="14"/>'
            f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>{_name(norm, y)}'
            f'<text x="{_WIDTH}" y="{y + 4}" text-anchor="end">×{one.median:.2f}</text>'
        )
    x = _LEFT + scale
    parts.append(f'<line class="reference" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
    title = f"Time per training step, {contents.baseline} = 1"
    return svg_figure(title, "".join(parts), _WIDTH, bottom + 4, caption_above=True)


def _name(norm: str, y: float) -> str:
    short = norm if len(norm) <= 16 else norm[:15] + "…"
    return f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end"><title>{escape(norm)}</title>{escape(short)}</text>'
