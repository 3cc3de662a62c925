"""The table for a terminal, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv as csv_module
import io
import math
from collections.abc import Callable
from typing import NamedTuple

from ...html.text import table, visible
from ..results import Column, mean_and_deviation
from ..statistics import Difference
from .contents import Contents, costs, step
from .effect import CLOSE, is_level
from .labels import display_name

_HEAD = (
    "norm", "column", "loss", "corruption", "evaluation", "runs", "lost",
    "mean", "deviation", "low", "high", "difference", "difference_low", "difference_high", "p",
)  # fmt: skip
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "φ": r"$\varphi$", "κ": r"$\kappa$", "∞": r"$\infty$", "−": "$-$",
})  # fmt: skip


def _is_marked(contents: Contents, column: Column, norm: str) -> bool:
    """Whether a norm is the best of a column or as good for all that is known; none is if all are within noise."""
    verdict = contents.verdicts[column]
    return not verdict.is_noise and (norm == verdict.best or is_level(verdict, norm))


def _differs(contents: Contents, column: Column, norm: str) -> bool:
    """Whether a norm differs from the baseline beyond chance."""
    found = contents.verdicts[column].to_baseline
    return norm in found and found[norm].is_real


class _Style(NamedTuple):
    """How a kind of table writes names and marks."""

    name: Callable[[str], str]
    value: Callable[[str], str]
    bold: Callable[[str], str]
    star: str


def text(contents: Contents) -> str:
    """The table for a terminal."""
    head, rows = cells(contents)
    return "\n".join(table(head, rows))


def cells(contents: Contents) -> tuple[list[str], list[list[str]]]:
    """Head and rows: mean ± deviation and the worst run of each column, and the cost of a step."""
    short = [label.partition("(")[0] for label in contents.labels.values()]
    labels = short if len(set(short)) == len(short) else list(contents.labels.values())
    cost = costs(contents)
    rows = []
    for norm in contents.norms:
        row = [norm]
        for column, verdict in contents.verdicts.items():
            found = contents.runs[column].get(norm)
            worst = "" if found is None or len(found.accuracies) < 2 else f"{found.worst:.1f}"
            row += [mean_and_deviation(verdict.summaries[norm]), worst]
        known = norm in cost
        row += [_times(cost[norm].median) if known else "", _times(cost[norm].memory) if known else ""]
        rows.append(row)
    head = ["norm", *[name for label in labels for name in (label, "worst")], "time", "memory"]
    return head, [row for row in rows if any(row[1:-2])]


def cost_line(contents: Contents) -> str:
    """What the columns of the cost mean, with the baseline's own step; empty where no cost is known."""
    base, found = display_name(contents.baseline), step(contents)
    if contents.baseline not in costs(contents):
        return ""
    own = [
        *([f"{found.milliseconds:.3g} ms"] if found.milliseconds else []),
        *([f"{bytes_text(found.bytes_kept)} kept for the backward pass"] if found.bytes_kept else []),
    ]
    said = f"Time and memory are those of a training step, relative to {base}"
    return said + (f" ({', '.join(own)})." if own else ".")


def bytes_text(number: float) -> str:
    """Bytes in a readable unit.

    Examples:
        >>> from geonorm.lab.report.tables import bytes_text
        >>> bytes_text(640), bytes_text(83_000), bytes_text(2_500_000)
        ('640 B', '83 kB', '2.5 MB')
    """
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def _times(ratio: float) -> str:
    return "" if math.isnan(ratio) else f"{ratio:.2f}×"


def markdown(contents: Contents) -> str:
    """The table for a README: bold for the best, a star for norms that differ from the baseline beyond chance."""
    style = _Style(_code, str, lambda text: f"**{text}**", "\\*")
    head, *rows = _lines(contents, style)
    body = "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
    return f"{body}\n\n{_caption(contents, style)}\n"


def latex(contents: Contents) -> str:
    """The table for a paper."""
    style = _Style(_escaped, _escaped, lambda text: rf"\textbf{{{text}}}", "$^*$")
    head, *rows = [" & ".join(line) + r" \\" for line in _lines(contents, style)]
    body = "\n".join(rows)
    return (
        "% needs \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{l{'c' * len(contents.labels)}}}\n\\toprule\n{head}\n\\midrule\n{body}\n\\bottomrule\n"
        f"\\end{{tabular}}\n% {_caption(contents, style)}\n"
    )


def csv(contents: Contents) -> str:
    """All numbers, one line for each norm and column; accuracies in per cent, differences in points."""
    file = io.StringIO()
    writer = csv_module.writer(file, lineterminator="\n")
    writer.writerow(_HEAD)
    for column, label in contents.labels.items():
        verdict = contents.verdicts[column]
        for norm, found in verdict.summaries.items():
            gap = verdict.to_baseline.get(norm, Difference(0, math.nan, math.nan, math.nan, math.nan))
            figures = [_decimal(value) for value in (*found[2:], *gap[1:4])]
            p = "" if math.isnan(gap.p) else f"{gap.p:.3g}"
            writer.writerow([*map(_no_formula, (norm, label, *column)), found.number, found.lost, *figures, p])
    return file.getvalue()


def _no_formula(text: str) -> str:
    """A name that a spreadsheet does not compute: with an apostrophe before what would start a formula.

    A carriage return is spelled out, because the writer of this Python leaves it bare, and it may start a row.
    """
    text = visible(text)
    return f"'{text}" if text[:1] in tuple("=+-@\t\n") else text


def _lines(contents: Contents, style: _Style) -> list[list[str]]:
    lines = [["norm", *map(style.name, contents.labels.values())]]
    for norm in contents.norms:
        cells = [style.name(norm)]
        for column, verdict in contents.verdicts.items():
            text = style.value(mean_and_deviation(verdict.summaries[norm]) or "–")
            text = style.bold(text) if _is_marked(contents, column, norm) else text
            cells.append(text + style.star * _differs(contents, column, norm))
        lines.append(cells)
    return lines


def _caption(contents: Contents, style: _Style) -> str:
    number = len(contents.seeds())
    over = style.value(f"mean ± standard deviation over {number} seed{'s' * (number != 1)}")
    return (
        f"Accuracy in per cent, {over}. Bold: the best, and those within {CLOSE:g} point of it that do not differ from "
        "it beyond chance. "
        f"{style.star}: differs from {style.name(contents.baseline)} beyond chance "
        f"(paired t-test, Holm, {style.value('5 %')})."
    )


def _decimal(value: float) -> str:
    """A percentage with four decimals; no minus sign for zero."""
    return "" if math.isnan(value) else f"{round(value, 4) + 0.0:.4f}"


def _code(text: str) -> str:
    """A Markdown code span, with pipes and backticks escaped."""
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"


def _escaped(text: str) -> str:
    return text.replace("\n", " ").translate(_LATEX)
