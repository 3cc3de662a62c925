"""All files of a report."""

from __future__ import annotations

from pathlib import Path

from ...html.whole import write_whole
from ..results import Comparison
from . import plots, tables
from .contents import Contents, gather
from .page import page


def write(comparison: Comparison | Contents, folder: str | Path, baseline: str | None = None) -> Path:
    """Write the report: a page, the table for papers and programs, and the pictures.

        report.html                        the whole report in one self-contained file
        table.md, table.tex, table.csv     the table; the CSV has all numbers
        runs, curves, phi, cost            pictures, each as .png and .svg, where there is something to see

    Args:
        comparison: some of its runs may be unfinished, which the report says; or the result of ``gather``.
        folder: created if it does not exist; files of an earlier report are replaced.
        baseline: the norm that the others are compared with; ``"bn"`` by default, else ``"own"``, else the first.

    Returns:
        The path of ``report.html``.
    """
    contents = gather(comparison, baseline)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for ending, text in (
        ("md", tables.markdown(contents)),
        ("tex", tables.latex(contents)),
        ("csv", tables.csv(contents)),
    ):
        write_whole(folder / f"table.{ending}", text)
    path = folder / "report.html"
    write_whole(path, page(contents))
    plots.draw(contents, folder)
    return path
