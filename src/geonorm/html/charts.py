"""Small SVG charts, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from html import escape

from .result import shown

_WIDTH, _HEIGHT, _LEFT, _TOP = 480, 130, 54, 8


def svg_figure(
    title: str, inside: str, width: float, height: float, *, label: str = "", caption_above: bool = False
) -> str:
    """A figure with a caption; ``label`` describes it to screen readers, by default with the title."""
    drawing = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label or title)}">{inside}</svg>'
    caption = f"<figcaption>{escape(title)}</figcaption>"
    return f"<figure>{caption + drawing if caption_above else drawing + caption}</figure>"


def bars(title: str, values: Sequence[float], flagged: Collection[int] = ()) -> str:
    """One bar for each channel, from 0; flagged channels have another colour."""
    finite = [value for value in values if math.isfinite(value)]
    high, low = max([0.0, *finite]), min([0.0, *finite])
    span = (high - low) or 1.0
    step = (_WIDTH - _LEFT) / max(len(values), 1)
    scale = (_HEIGHT - 2 * _TOP) / span

    def place(value: float) -> float:
        return _TOP + (high - value) * scale

    parts = []
    for channel, value in enumerate(values):
        if not math.isfinite(value):
            continue
        top, bottom = sorted((place(value), place(0.0)))
        height = max(bottom - top, 1.5)  # a value of 0 is still visible
        kind = "flag" if channel in flagged else "bar"
        parts.append(
            f'<rect class="{kind}" x="{_LEFT + channel * step:.2f}" y="{min(top, _HEIGHT - height):.2f}" '
            f'width="{max(step * 0.85, 0.4):.2f}" height="{height:.2f}">'
            f"<title>channel {channel}: {shown(value)}</title></rect>"
        )
    marks = "".join(
        f'<text x="{_LEFT - 6}" y="{place(value) + 4:.1f}" text-anchor="end">{escape(f"{value:.2g}")}</text>'
        for value in dict.fromkeys((high, low))
    )
    axis = f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{place(0.0):.1f}" y2="{place(0.0):.1f}"/>'
    label = f"{title}, {len(values)} channels"
    return svg_figure(title, f"{axis}{''.join(parts)}{marks}", _WIDTH, _HEIGHT, label=label)


def histogram(title: str, low: float, high: float, counts: Sequence[int]) -> str:
    """Counts of values in bins of equal width from ``low`` to ``high``."""
    most, base = max([*counts, 1]), _HEIGHT - 18
    step = (_WIDTH - _LEFT) / len(counts)
    parts = []
    for i, count in enumerate(counts):
        height = (base - _TOP) * count / most
        start, end = (low + (high - low) * j / len(counts) for j in (i, i + 1))
        parts.append(
            f'<rect class="bar" x="{_LEFT + i * step:.2f}" y="{base - height:.2f}" width="{step * 0.9:.2f}" '
            f'height="{height:.2f}"><title>{count} between {shown(start)} and {shown(end)}</title></rect>'
        )
    axis = f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{base}" y2="{base}"/>'
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{escape(f"{low:.2g}")}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{escape(f"{high:.2g}")}</text>'
    )
    return svg_figure(title, f"{axis}{''.join(parts)}{ends}", _WIDTH, _HEIGHT)


def shares(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    """A share between 0 and 1 for each name, as horizontal bars."""
    row, left = 18, 150
    parts = []
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        y = 4 + i * row
        short = name if len(name) <= 22 else "…" + name[-21:]
        length = (_WIDTH - left - 50) * min(max(value, 0.0), 1.0)
        parts.append(
            f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{escape(short)}</text>'
            f'<rect class="bar" x="{left}" y="{y + 3}" width="{max(length, 1):.1f}" height="{row - 6}">'
            f"<title>{escape(name)}: {shown(value)}</title></rect>"
            f'<text x="{left + length + 6:.1f}" y="{y + 12}">{value:.2f}</text>'
        )
    height = 8 + row * len(names)
    return svg_figure(title, "".join(parts), _WIDTH, height)
