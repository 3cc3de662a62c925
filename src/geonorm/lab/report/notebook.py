"""A comparison in a notebook: the answer, every run, and the table."""

from __future__ import annotations

from html import escape

from ...html import notebook as html
from ...html.document import read
from ...html.palette import COLOURS
from ..results import Comparison
from . import charts, tables
from .contents import gather
from .verdict_text import paragraphs

_COLOURS = (  # a page defines them for light and dark; a notebook has its own text colour
    "--text: currentColor; --soft: #808890; --line: #80889055; --flag: #d1572b; --bar: #6f8fb5; "
    "svg { width: 100%; max-width: 30rem; height: auto; display: block; } svg text { fill: currentColor; "
    "font: 11px system-ui, sans-serif; } svg .bar { fill: var(--bar); } svg .axis { stroke: var(--line); } "
    "figure { margin: 0.5rem 0; width: 100%; display: block; text-align: left; } "
    "figcaption { opacity: 0.7; font-size: 0.85rem; font-style: normal; margin: 0; max-width: none; } "
)


def notebook(comparison: Comparison) -> str:
    """The comparison as HTML."""
    contents = gather(comparison)
    looks = "".join(f".c{i} {{ --colour: {colour}; }} " for i, colour in enumerate(COLOURS))
    style = f".geonorm {{ {_COLOURS}{looks}{read('geonorm.lab.report', 'charts.css')} }}"
    drawn = [
        f"<p><b>{escape(label)}</b></p>{charts.runs(contents, column)}" for column, label in contents.labels.items()
    ]
    head, rows = tables.cells(contents)
    answer = [html.paragraph(text) for text in paragraphs(contents)]
    cost = html.paragraph(tables.cost_line(contents), "soft") if any(row[-2] for row in rows) else ""
    return html.frame([*answer, *drawn, html.table(head, rows), cost], style)
