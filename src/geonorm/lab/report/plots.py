"""The pictures as PNG and SVG files: the same results always give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...html.palette import TEXT, Look, line_style, looks
from ...html.result import figure
from ...html.whole import replacing
from ..extras import require
from .contents import Contents, costs
from .series import View, exponents, is_flat, learning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WORST = "#d1572b"  # of the ring around the worst run, as on the page
_ACROSS = 4  # panels in a row, at most


def draw(contents: Contents, folder: Path) -> None:
    """Write every picture that there are data for, as PNG and as SVG."""
    views = [view for view in learning(contents) if not is_flat(view)]
    learned = [view for view in exponents(contents) if not is_flat(view)]
    drawn = {
        "curves": _curves(views, looks(contents.norms, contents.baseline)) if views else None,
        "runs": _runs(contents),
        "phi": _curves(learned, _layer_looks(learned)) if learned else None,
        "cost": _cost(contents),
    }
    # By default an SVG contains random identifiers and a date.
    with require("matplotlib", "matplotlib").rc_context({"svg.hashsalt": "geonorm"}):
        for name, picture in drawn.items():
            for ending in ("png", "svg"):
                path = folder / f"{name}.{ending}"
                if picture is None:
                    path.unlink(missing_ok=True)  # of an earlier report
                    continue
                with replacing(path) as temporary:
                    picture.savefig(temporary, dpi=150, metadata={"Date": None} if ending == "svg" else None)
                picture.set_layout_engine("none")  # keep the layout: writing the second file takes half the time


def _curves(views: Sequence[View], look: dict[str, Look]) -> Figure:
    across = min(_ACROSS, len({view.condition for view in views}))
    down = math.ceil(len(views) / across)
    drawing = figure(1.5 + 3.6 * across, 0.8 + 2.7 * down)
    panels = drawing.subplots(down, across, squeeze=False).flat
    for panel, view in zip(panels, views, strict=False):
        for line in view.lines:
            style = line_style(look[line.name])
            epochs = range(1, len(line.mean) + 1)
            mean = [math.nan if value is None else value for value in line.mean]
            panel.plot(epochs, mean, label=_short(line.name), **style)
            low, high = ([m + s * d for m, d in zip(mean, line.deviation, strict=True)] for s in (-1, 1))
            panel.fill_between(epochs, low, high, color=style["color"], alpha=0.12, linewidth=0)
        low, high = panel.get_ylim()
        if high - low < view.span:
            panel.set_ylim((low + high - view.span) / 2, (low + high + view.span) / 2)
        panel.set_title(_short(view.title, 40), loc="left", fontsize="medium")
        panel.set_xlabel("epoch")
        _plain(panel)
    for panel in list(drawing.axes)[len(views) :]:
        panel.set_visible(False)
    named = {text: handle for panel in drawing.axes for handle, text in zip(*panel.get_legend_handles_labels())}  # noqa: B905
    drawing.legend(list(named.values()), list(named), loc="outside right upper", frameon=False)
    return drawing


def _runs(contents: Contents) -> Figure:
    """In a row for each column: every run as a dot, the worst ringed; and the differences to the baseline."""
    look = looks(contents.norms, contents.baseline)
    drawing = figure(9.5, 0.4 + len(contents.labels) * (1.0 + 0.28 * len(contents.norms)))
    panels = drawing.subplots(len(contents.labels), 2, squeeze=False)
    for (left, right), (column, verdict) in zip(panels, contents.verdicts.items(), strict=True):
        for i, norm in enumerate(contents.norms):
            colour = line_style(look[norm])["color"]
            found = contents.runs[column].get(norm)
            if found is not None and found.accuracies:
                values = list(found.accuracies.values())
                left.scatter(values, [i] * len(values), s=22, color=colour, alpha=0.5, linewidths=0)
                left.scatter([verdict.summaries[norm].mean], [i], s=120, color=colour, marker="|")
                if len(values) > 1:
                    left.scatter([found.worst], [i], s=60, facecolors="none", edgecolors=_WORST)
            gap = verdict.to_baseline.get(norm)
            if gap is not None and gap.number:
                right.plot([gap.low, gap.high], [i, i], color=colour, linewidth=3, alpha=0.5)
                right.plot([gap.mean], [i], "o", color=colour)
        label = _short(contents.labels[column], 36)
        left.set_title(f"{label}: every run (%)", loc="left", fontsize="medium")
        right.set_title(f"difference to {_short(contents.baseline)}, 95 % interval", loc="left", fontsize="medium")
        right.axvline(0.0, color=TEXT, linewidth=1)
        left.set_yticks(range(len(contents.norms)), [_short(norm) for norm in contents.norms])
        right.set_yticks(range(len(contents.norms)), [""] * len(contents.norms))
        for panel in (left, right):
            panel.set_ylim(len(contents.norms) - 0.5, -0.5)
            _plain(panel)
    drawing.supxlabel("ringed: the worst run of each norm", x=0.01, ha="left", fontsize="small", color=_WORST)
    return drawing


def _cost(contents: Contents) -> Figure | None:
    found = costs(contents)
    if not found:
        return None
    drawing = figure(7.0, 1.2 + 0.35 * len(found))
    panel = drawing.subplots()
    middle = [one.median for one in found.values()]
    reach = [[one.median - one.low for one in found.values()], [one.high - one.median for one in found.values()]]
    panel.barh(range(len(found)), middle, xerr=reach, color="#8fa9c4", ecolor=TEXT, capsize=2, height=0.65)
    panel.set_yticks(range(len(found)), [_short(norm) for norm in found])
    panel.axvline(1.0, color=TEXT, linewidth=1)
    panel.invert_yaxis()
    panel.set_title(f"Time per training step, {_short(contents.baseline)} = 1", loc="left")
    _plain(panel)
    return drawing


def _layer_looks(views: Sequence[View]) -> dict[str, Look]:
    return looks(list(dict.fromkeys(line.name for view in views for line in view.lines)))


def _short(name: str, most: int = 24) -> str:
    """Cut long names, and escape dollars, which matplotlib would read as mathematics."""
    cut = name if len(name) <= most else name[: most - 1] + "…"
    return cut.replace("$", "\\$")


def _plain(panel: Any) -> None:
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
