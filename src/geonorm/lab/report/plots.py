"""The pictures as PNG and SVG files: the same results always give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...html.palette import DASHES, TEXT, Look, line_style, looks
from ...html.result import figure
from ..extras import require
from .contents import Contents, clipped_interval, costs
from .series import View, exponents, learning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "os^D"  # one for each kind of dash
_ACROSS = 4  # panels in a row, at most


def draw(contents: Contents, folder: Path) -> None:
    """Write every picture that there are data for, as PNG and as SVG."""
    views, learned = learning(contents), exponents(contents)
    drawn = {
        "curves": _curves(views, looks(contents.norms, contents.baseline)) if views else None,
        "accuracy": _accuracy(contents),
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
                picture.savefig(path, dpi=150, metadata={"Date": None} if ending == "svg" else None)
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


def _accuracy(contents: Contents) -> Figure:
    """Accuracy under each corruption and evaluation, with 95 % intervals, norms side by side."""
    look = looks(contents.norms, contents.baseline)
    drawing = figure(3.5 + 1.6 * len(contents.labels), 4.0)
    panel = drawing.subplots()
    for i, norm in enumerate(contents.norms):
        found = [verdict.summaries[norm] for verdict in contents.verdicts.values()]
        places = [x + 0.6 * ((i + 0.5) / len(contents.norms) - 0.5) for x in range(len(found))]
        ends = [(one.mean, one.mean) if one.number < 2 else clipped_interval(one) for one in found]
        reach = [[one.mean - low, high - one.mean] for one, (low, high) in zip(found, ends, strict=True)]
        style = line_style(look[norm])
        marker = _MARKERS[DASHES.index(look[norm].dash)]
        panel.errorbar(
            places,
            [one.mean for one in found],
            list(zip(*reach, strict=True)),
            label=_short(norm),
            marker=marker,
            capsize=3,
            **style,
        )
    panel.set_xticks(range(len(contents.labels)), [_short(label, 32) for label in contents.labels.values()])
    panel.tick_params(axis="x", rotation=20 if len(contents.labels) > 2 else 0)
    panel.set_title("Accuracy (%), mean and 95 % interval", loc="left")
    _plain(panel)
    drawing.legend(loc="outside right upper", frameon=False)
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
