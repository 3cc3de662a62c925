"""Output of ``compare`` and ``report``: the table, the answer, and the page of a comparison."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .terminal import show

if TYPE_CHECKING:
    from ..lab import Comparison


def add_outcome(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the report."""
    parser.add_argument("--out", type=Path, help="folder for the report (default: next to the results)")
    parser.add_argument("--baseline", metavar="SPEC", help="the norm that others are compared with (default: bn)")


def default_folder(store: Path) -> Path:
    """The folder for the report of a results file: next to it."""
    return store.parent / f"{store.stem}-report"


def tell(comparison: Comparison, folder: Path, baseline: str | None, quiet: bool) -> dict[str, Any]:
    """Write the report, print its answer unless quiet, and return it for JSON."""
    from ..lab.bars import busy
    from ..lab.recipe import AXES
    from ..lab.report import answer, tables, write
    from ..lab.report.contents import gather
    from ..lab.report.verdict_text import paragraphs

    contents = gather(comparison, baseline)
    if not quiet:  # print first, in case the disk is full; if the reader has closed the pipe, still write the page
        with contextlib.suppress(BrokenPipeError):
            show(f"{tables.text(contents)}\n{tables.cost_line(contents)}\n")
            for paragraph in paragraphs(contents):
                show(f"{paragraph}\n", style="bold", flush=True)
    try:
        with busy("writing the report"):
            page = write(contents, folder, baseline)
    except OSError as error:
        raise OSError(f"the report cannot be written ({error}); choose another folder with --out") from error
    if not quiet:
        show(f"Page: {page}")
    return {
        "answer": answer(contents),
        "page": str(page),
        "store": str(comparison.store.path),
        "runs": len(comparison.runs),
        "finished": [
            {
                **{name: run.choices[name] for name in AXES},
                "figures": run.figures,
                "seconds": run.seconds,
                "device": run.device,
            }
            for run in comparison.finished()
        ],
    }
