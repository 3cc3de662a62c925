"""The page of a study: verdicts, tables and charts as Markdown and SVG; the same results always give the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from geonorm.html.palette import line_style, looks
from geonorm.html.result import figure
from geonorm.html.whole import replacing, write_whole
from geonorm.lab.extras import require
from geonorm.lab.statistics import summarize

from .verdicts import EXPLORATORY, FAILS, HOLDS, PENDING, UNDECIDED, UNTESTED, Verdict

_TESTED = """\
Tests are one-sided and paired over seeds or splits. A claim holds if its test says so; it does not hold if another
test shows that the effect is smaller than the least one of interest, which is given with its reason below. Both are
corrected for the number of claims in their table (Holm): the probability that any verdict in a table is wrong is at
most 5 %. Intervals are those of one difference, 90 %, so that each end is a one-sided bound of 95 %."""


_POINTS = 100  # points of a curve


class Table(NamedTuple):
    """Figures in rows and columns."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


class Line(NamedTuple):
    """One curve with a band around it; ``low`` and ``high`` may be empty."""

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


class Chart(NamedTuple):
    """Curves side by side, one panel for each entry of ``panels``; ``ticks`` are labels at some places of x."""

    name: str
    title: str
    x_label: str
    y_label: str
    panels: Mapping[str, Sequence[Line]]
    log: bool = False
    log_x: bool = False
    ticks: Mapping[float, str] = {}


Block: TypeAlias = Table | Chart


class Page(NamedTuple):
    """The contents of a page.

    Attributes:
        differs: the differences from the published protocol.
        verdicts: one per claim.
        blocks: tables and charts.
    """

    differs: str
    verdicts: Sequence[Verdict]
    blocks: Sequence[Block]


def spread(values: Mapping[Any, float] | Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation.

    Examples:
        >>> from studies.page import spread
        >>> spread([90.0, 92.0])
        '91.00 ± 1.41'
    """
    found = summarize(values.values() if isinstance(values, Mapping) else values)
    if not found.number:
        return ""
    lost = f" ({found.lost} diverged)" if found.lost else ""
    return f"{found.mean:.{digits}f}" + (f" ± {found.deviation:.{digits}f}" if found.number > 1 else "") + lost


def mean_line(label: str, curves: Sequence[Sequence[float]], factor: float = 1.0) -> Line:
    """The mean of several curves over epochs, with a band of one standard deviation.

    If there are more epochs than a chart can show, each point is the mean over several epochs.

    Examples:
        >>> from studies.page import mean_line
        >>> mean_line("two", [[1.0, 3.0], [2.0, 6.0]]).mean
        [1.5, 4.5]
        >>> mean_line("long", [range(200)]).x[:2], mean_line("long", [range(200)]).mean[:2]
        ([2, 4], [0.5, 2.5])
    """
    epochs = min(map(len, curves), default=0)
    block = max(1, -(-epochs // _POINTS))
    ends = range(block, epochs + 1, block)
    found = [summarize([factor * fmean(values[end - block : end]) for values in curves]) for end in ends]
    mean = [one.mean for one in found]
    bands = [[one.mean + sign * one.deviation for one in found] if len(curves) > 1 else [] for sign in (-1, 1)]
    return Line(label, list(ends), mean, *bands)


def write(name: str, line: str, source: str, command: str, page: Page, folder: Path) -> Path:
    """Write NAME.md and its charts; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"# {name}\n", f"{line}\n", f"Source: {source}. Run here with `{command}`.\n", "## Verdicts\n"]
    if page.verdicts:
        parts.append(f"{tally(page.verdicts) or 'No claim is judged yet'}.\n")
    parts += [*_judged(page.verdicts), f"{_TESTED}\n"]
    parts.append(f"## How ours differs\n\n{page.differs}\n")
    for block in page.blocks:
        if isinstance(block, Chart) and not block.panels:
            continue  # it has no data yet
        parts.append(f"## {block.title}\n")
        if isinstance(block, Table):
            parts.append(markdown(block.heads, block.rows))
            if block.note:
                parts.append(f"{block.note}\n")
        else:
            picture = f"{name}-{block.name}.svg"
            _draw(block, folder / picture)
            parts.append(f"![{block.title}]({picture})\n")
    path = folder / f"{name}.md"
    write_whole(path, "\n".join(parts))
    return path


def _judged(verdicts: Sequence[Verdict]) -> list[str]:
    """The tables of the paper's claims, of our questions, and of further figures without a verdict."""
    parts = []
    further = [one for one in verdicts if one.verdict == EXPLORATORY]
    judged = [one for one in verdicts if one.verdict != EXPLORATORY]
    claims = [(one.claim, f"**{one.verdict}**", one.published, one.ours, one.why) for one in judged if not one.is_own]
    questions = [(one.claim, f"**{one.verdict}**", one.ours, one.why) for one in judged if one.is_own]
    if claims:
        parts += ["### Claims of the paper\n", markdown(("claim", "verdict", "published", "ours", "why"), claims)]
    if questions:
        parts += ["### Our questions\n", markdown(("question", "verdict", "ours", "why"), questions)]
    if further:
        rows = [(one.claim, "" if one.is_own else one.published, one.ours, one.why) for one in further]
        parts += ["### Further figures, without a verdict\n", markdown(("figure", "published", "ours", "why"), rows)]
    return parts


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, separately for those of the papers and our own questions.

    Examples:
        >>> from studies.page import tally
        >>> from studies.verdicts import HOLDS, OWN, Verdict
        >>> tally([Verdict("1 < 2", "Table 1", "1 and 2", HOLDS, "so"), Verdict("2 < 3", OWN, "2 and 3", HOLDS, "so")])
        'Claims of the paper: 1 holds. Our questions: 1 holds'
    """
    said = []
    for title, of in (
        ("Claims of the paper", [one for one in verdicts if not one.is_own]),
        ("Our questions", [one for one in verdicts if one.is_own]),
    ):
        counts = Counter(one.verdict for one in of)
        words = {
            HOLDS: ("holds", "hold"),
            FAILS: ("does not", "do not"),
            UNDECIDED: ("is undecided", "are undecided"),
            UNTESTED: (UNTESTED, UNTESTED),
            PENDING: ("waits for more runs", "wait for more runs"),
        }
        each = [f"{counts[word]} {forms[counts[word] > 1]}" for word, forms in words.items() if counts[word]]
        if each:
            said.append(f"{title}: {', '.join(each)}")
    return ". ".join(said)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _draw(chart: Chart, path: Path) -> None:
    labels = list(dict.fromkeys(line.label for lines in chart.panels.values() for line in lines))
    look = looks(labels, labels[0] if labels else None)
    with require("matplotlib", "matplotlib").rc_context(
        {"svg.hashsalt": "geonorm", "svg.fonttype": "none", "path.simplify": False}
    ):
        columns = min(3, len(chart.panels)) if len(chart.panels) != 4 else 2
        rows = -(-len(chart.panels) // columns)
        drawing = figure(max(5.0, 3.6 * columns), 2.9 * rows)
        axes = drawing.subplots(rows, columns, squeeze=False).ravel()
        for axis, (title, lines) in zip(axes, chart.panels.items(), strict=False):
            for line in lines:
                style = line_style(look[line.label])
                marker = "o" if chart.log_x or chart.ticks else ""  # a few chosen values, not every epoch
                axis.plot(line.x, line.mean, label=line.label, marker=marker, markersize=3, **style)
                if len(line.low):
                    axis.fill_between(line.x, line.low, line.high, color=style["color"], alpha=0.12, linewidth=0)
            axis.set(title=title, xlabel=chart.x_label, ylabel=chart.y_label, yscale="log" if chart.log else "linear")
            if chart.ticks:
                axis.set_xticks(list(chart.ticks), list(chart.ticks.values()))
            elif not chart.log_x and chart.x_label == "epoch":
                axis.xaxis.get_major_locator().set_params(integer=True)
            if chart.log_x:  # plain numbers at the powers of ten; more would overlap
                axis.set_xscale("log")
                axis.xaxis.set_major_formatter("{x:g}")
                axis.xaxis.set_minor_formatter("")
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
        for axis in axes[len(chart.panels) :]:
            axis.set_visible(False)
        drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        with replacing(path) as temporary:
            drawing.savefig(temporary, metadata={"Date": None, "Creator": None})
