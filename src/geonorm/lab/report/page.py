"""The report as one self-contained page: the answer first, then the evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

from ...html.document import Cell, document, read, sortable
from ...html.palette import COLOURS, looks
from ..info import facts
from ..recipe import study_settings
from ..results import Column, mean_and_deviation
from ..statistics import Summary
from . import charts, pictures, rerun
from .cautions import cautions
from .contents import Contents, clipped_interval
from .effect import CLOSE, Runs, is_level
from .labels import display_name, probability, signed
from .series import View, exponents, is_flat, learning
from .verdict_text import column_text, paragraphs


def page(contents: Contents) -> str:
    """The page as HTML."""
    title = contents.comparison.title()
    colours = "".join(f".c{i} {{ --colour: {colour}; }}\n" for i, colour in enumerate(COLOURS))
    style = "".join(read("geonorm.lab.report", name) for name in ("charts.css", "report.css"))
    return document(title, _parts(contents, title), colours + style, read("geonorm.lab.report", "report.js"))


def _parts(contents: Contents, title: str) -> list[str]:
    return [
        f'<h1 class="small">{escape(title)}</h1>',
        '<div class="answer">' + "".join(f"<p>{escape(part)}</p>" for part in paragraphs(contents)) + "</div>",
        _chips(contents),
        *_cautions(contents),
        "<h2>Every run</h2>",
        *_columns(contents),
        "<h2>Accuracy</h2>",
        _legend(contents),
        _table(contents),
        *_plot("Learning curves", "curves", _LEARNING, learning(contents), contents),
        *_plot("The learned exponent φ", "exponents", _EXPONENTS, exponents(contents), contents),
        *_cost(contents),
        "<h2>The norms</h2>",
        _norms(contents),
        *_rerun(contents),
    ]


_LEARNING = "Mean over seeds; the band is one standard deviation to each side. Click a name to hide or show its line."
_VERSIONS = ("geonorm", "torch", "python", "machine", "backend")
_EXPONENTS = (
    "Each layer's mean of φ over its channels: 1 subtracts the median, 2 the mean, larger values lean to the extremes."
)


def _chips(contents: Contents) -> str:
    done, asked, seeds = len(contents.finished), len(contents.comparison.runs), len(contents.seeds())
    texts = [
        f"{len(contents.norms)} norm{'s' * (len(contents.norms) != 1)}",
        f"{seeds} seed{'s' * (seeds != 1)}",
        f"{done} of {asked} runs finished" if done < asked else f"{asked} runs",
        *([f"compared with {display_name(contents.baseline)}"] if len(contents.norms) > 1 else []),
    ]
    return '<ul class="chips">' + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _cautions(contents: Contents) -> list[str]:
    found = cautions(contents)
    cards = [f'<div class="card warning"><p>{escape(one.text)}</p></div>' for one in found if one.severity == "warning"]
    notes = "".join(f"<li>{escape(one.text)}</li>" for one in found if one.severity == "note")
    return [*cards, f'<ul class="notes">{notes}</ul>' if notes else ""]


def _legend(contents: Contents) -> str:
    return (
        '<p class="soft">Per cent of the test samples: mean ± standard deviation over runs, the 95 % interval of the '
        f"mean, and the difference to {escape(display_name(contents.baseline))} in points (paired t-test, corrected "
        'for the number of norms). <span class="mark best">best</span>: highest mean; <span class="mark level">level'
        f"</span>: at most {CLOSE:g} point below it, which could be chance. Click a column head to sort.</p>"
    )


def _table(contents: Contents) -> str:
    rows = []
    for norm in contents.norms:
        name = Cell(escape(norm).replace("(", "<wbr>("), norm, "name")  # where a phone may break the line
        rows.append([name, *[_cell(contents, column, norm) for column in contents.verdicts]])
    return sortable(["norm", *contents.labels.values()], rows)


def _cell(contents: Contents, column: Column, norm: str) -> Cell:
    verdict = contents.verdicts[column]
    found = verdict.summaries[norm]
    if not found.number:
        return Cell(f'<span class="soft">{mean_and_deviation(found) or "no result"}</span>', "", "figures")
    mark = ""
    if not verdict.is_noise:
        if norm == verdict.best:
            mark = ' <span class="mark best">best</span>'
        elif is_level(verdict, norm):
            mark = ' <span class="mark level">level</span>'
    lines = [f"<b>{mean_and_deviation(found)}</b>{mark}", _interval(found), _worst(contents.runs[column][norm])]
    if norm == contents.baseline:
        lines.append("baseline")
    elif norm in verdict.to_baseline:
        gap = verdict.to_baseline[norm]
        p = escape(probability(gap.p)).replace(" ", "&nbsp;")  # a phone may break the line before it
        text = f"{signed(gap.mean)}, {p}"
        lines.append(f'<span class="{"real" if gap.is_real else "chance"}">{text}</span>')
    if found.lost:
        lines.append(f"{found.lost} lost")
    return Cell("".join(f"<div>{line}</div>" for line in lines if line), f"{found.mean:.6f}", "figures")


def _interval(found: Summary) -> str:
    low, high = clipped_interval(found)
    return "" if math.isnan(low) else f"{low:.1f} to {high:.1f}"


def _worst(runs: Runs) -> str:
    return "" if len(runs.accuracies) < 2 else f"worst {runs.worst:.1f}"


def _columns(contents: Contents) -> list[str]:
    words = (
        '<p class="soft">A dot is a run, a ring the worst one, a tick the mean. The second chart has the differences '
        f"to {escape(display_name(contents.baseline))}, seed by seed; its intervals are for one difference each, the p "
        "values in the table allow for the number of norms. Each chart has its own scale.</p>"
    )
    told = paragraphs(contents)
    drawn = []
    for column, label in contents.labels.items():
        text = column_text(contents, column)
        said = "" if text in told else f"<p>{escape(text)}</p>"  # the others are at the top of the page
        pictures = charts.runs(contents, column) + charts.differences(contents, column)
        drawn.append(f'<section><h3>{escape(label)}</h3>{said}<div class="charts">{pictures}</div></section>')
    return [words, *drawn]


def _plot(title: str, name: str, words: str, views: Sequence[View], contents: Contents) -> list[str]:
    """Curves as data that the page's script draws; flat ones are only named."""
    flat = [view.title for view in views if is_flat(view)]
    said = f"Not drawn, because nothing moves in the second half: {'; '.join(flat)}." if flat else ""
    views = [view for view in views if not is_flat(view)]
    if not views:
        return [f'<h2>{escape(title)}</h2><p class="soft">{escape(said)}</p>'] if said else []
    names = list(dict.fromkeys(line.name for view in views for line in view.lines))
    look = looks(names, contents.baseline)
    data = {
        "names": [{"name": each, "colour": look[each].colour, "dash": look[each].dash} for each in names],
        "views": [
            {
                "title": view.title,
                "span": view.span,
                "lines": [
                    {
                        "name": names.index(line.name),
                        "mean": [None if value is None else _short(value) for value in line.mean],
                        "deviation": [_short(value) for value in line.deviation],
                    }
                    for line in view.lines
                ],
            }
            for view in views
        ],
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return [
        f'<h2>{escape(title)}</h2><p class="soft">{escape(f"{words} {said}")}</p>',
        f'<div class="plot" data-source="{name}"><noscript>The picture files show the curves.</noscript></div>',
        f'<script type="application/json" id="{name}">{text}</script>',
    ]


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _cost(contents: Contents) -> list[str]:
    drawn = charts.cost(contents)
    if not drawn:
        return []
    words = (
        "Time: median over pairs of runs, and their range, measured during training with the test after every epoch; "
        "other work on the machine affects it. Memory: what a step keeps besides the parameters for its backward "
        "pass."
    )
    return [f'<h2>Cost of a training step</h2><p class="soft">{words}</p><div class="charts">{"".join(drawn)}</div>']


def _norms(contents: Contents) -> str:
    cards = [
        f'<li>{pictures.picture(norm)}<div><span class="name">{escape(norm)}</span>'
        f"<p>{escape(pictures.line_of(norm))}</p></div></li>"
        for norm in contents.norms
    ]
    return f'<p class="soft">{escape(pictures.explanation())}</p><ul class="norms">{"".join(cards)}</ul>'


def _rerun(contents: Contents) -> list[str]:
    comparison = contents.comparison
    strange = study_settings(comparison.settings())
    words = "With the recipe below in <code>recipe.toml</code>; runs in the results file are not repeated:"
    if rerun.has_own_functions(comparison):
        words = "With the two functions that make the data and the model:"
    elif strange:
        words = f"In a clone of the repository, by the name of the study; a recipe cannot set {', '.join(strange)}:"
    known = facts()
    values = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(known[name])}</dd></div>" for name in _VERSIONS)
    return [
        f"<h2>Run it again</h2><p>{words}</p><pre>{escape(rerun.command(comparison))}</pre>",
        f"<pre>{escape(rerun.recipe(comparison))}</pre>",
        f'<p class="soft">The report was written with:</p><dl class="facts">{values}</dl>',
    ]
