"""A small picture of each norm: the values it normalizes together, its center, and its placement."""

from __future__ import annotations

import math
from html import escape
from typing import Any, NamedTuple

import torch

from ...functional import center
from ...nn.specs import create_norm, parse_spec
from ..recipe import OWN

_SAMPLE = (0.6, 0.9, 1.0, 1.2, 1.5, 1.8, 7.0)  # one of the values is an outlier
_ROWS, _COLUMNS, _STEP = 5, 5, 13
_TOGETHER = {  # (row, column) of the cells that share statistics: rows are samples, columns are channels
    "batch": [(row, 1) for row in range(_ROWS)],
    "same": [(row, 1) for row in range(_ROWS)],
    "layer": [(1, column) for column in range(_COLUMNS)],
    "group": [(1, column) for column in range(2)],
    "instance": [(1, 1)],
    "graph": [(row, 1) for row in range(2)],
}
_EXPLAINED = (
    "Grid: rows are samples, columns are channels; values normalized together are filled. Line: seven values, one of "
    "them an outlier, and the center that is subtracted. Boxes: the placement of the norm N and the operation W."
)


class _Center(NamedTuple):
    """The center, or the range in which it is learned, and its name."""

    low: float
    high: float
    name: str


def explanation() -> str:
    """How to read the pictures."""
    return _EXPLAINED


def line_of(norm: str) -> str:
    """A description of a norm in one line."""
    if norm == OWN:
        return "the norms of the model as it was written"
    try:
        return parse_spec(norm).norm.line
    except ValueError:
        return ""


def picture(norm: str) -> str:
    """The picture as SVG; empty for an unknown norm."""
    try:
        spec = parse_spec(norm)
        where = None if spec.norm.build is None else _center(create_norm(spec, 32, dim=1))
    except ValueError:
        return ""
    on_weights, none = spec.norm.axes == "weight", spec.norm.axes == "none"
    parts = [_grid(spec.norm.axes)] if not on_weights else [_weights()]
    if where is not None and not none:
        parts.append(_line(where))
    names = ["W"] if on_weights or none else ["N", "W"] if spec.norm.before else ["W", "N"]
    parts.append(_chain(names, filled="W" if on_weights else "N"))
    return (
        f'<svg class="norm" viewBox="0 0 184 74" role="img" aria-label="{escape(f"{norm}: {line_of(norm)}")}">'
        f"{''.join(parts)}</svg>"
    )


def _center(layer: torch.nn.Module) -> _Center | None:
    """The center of a layer; torch's own layers subtract the mean, φ = 2."""
    options: Any = layer
    if not getattr(options, "center", True):
        return None
    if getattr(options, "learn_phi", False):
        low, high = options.phi_range
        return _Center(_at(low), _at(high), "φ learned")
    phi = float(getattr(options, "phi", 2.0))
    named = {1.0: "median", 2.0: "mean", math.inf: "midrange"}
    return _Center(_at(phi), _at(phi), named.get(phi, f"φ = {phi:g}"))


def _at(phi: float) -> float:
    return float(center(torch.tensor(_SAMPLE, dtype=torch.float64), phi))


def _grid(axes: str) -> str:
    together = _TOGETHER.get(axes, [])
    return "".join(
        f'<rect class="{"filled" if (row, column) in together else "cell"}" x="{2 + column * _STEP}" '
        f'y="{4 + row * _STEP}" width="{_STEP - 2}" height="{_STEP - 2}" rx="1.5"/>'
        for row in range(_ROWS)
        for column in range(_COLUMNS)
    )


def _weights() -> str:
    """A matrix of weights with one of its rows."""
    return _grid("layer") + '<text x="80" y="22">rows of weights</text>'


def _line(where: _Center) -> str:
    left, scale, y = 80, 14, 34

    def place(value: float) -> float:
        return left + scale * value

    dots = "".join(f'<circle class="dot" cx="{place(value):.1f}" cy="{y}" r="3"/>' for value in _SAMPLE)
    middle = (place(where.low) + place(where.high)) / 2
    if where.high > where.low:
        mark = (
            f'<line class="center" x1="{place(where.low):.1f}" x2="{place(where.high):.1f}" y1="{y - 9}" y2="{y - 9}"/>'
        )
    else:
        mark = f'<line class="center" x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 11}" y2="{y + 7}"/>'
    return (
        f'<line class="axis" x1="{left}" x2="182" y1="{y}" y2="{y}"/>{dots}{mark}'
        f'<text x="{middle:.1f}" y="{y - 15}" text-anchor="middle" class="named">{escape(where.name)}</text>'
    )


def _chain(names: list[str], filled: str) -> str:
    parts = []
    for i, name in enumerate(names):
        x = 80 + 42 * i
        box, ink = ("filled", "on") if name == filled else ("cell", "named")
        parts.append(
            f'<rect class="{box}" x="{x}" y="50" width="26" height="18" rx="3"/>'
            f'<text x="{x + 13}" y="63" text-anchor="middle" class="{ink}">{name}</text>'
        )
        if i + 1 < len(names):
            parts.append(f'<path class="arrow" d="M{x + 28} 59h10m-4 -3l4 3l-4 3"/>')
    return "".join(parts)
