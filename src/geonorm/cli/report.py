"""``geonorm report``: the report of stored results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .outcome import add_outcome, default_folder, tell
from .parser import Commands, Mistake, Parser, add_json, print_json
from .terminal import show

if TYPE_CHECKING:
    from ..lab import Comparison

_EPILOG = """\
A file that holds several comparisons, of different data, models or settings, gives a folder for each.

examples:
  geonorm report out/compare.sqlite
  geonorm report out/compare.sqlite --baseline ln --out report
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "the table, the answer and the page of stored results, finished or not"
    parser = commands.add_parser("report", help=text, description=text, epilog=_EPILOG)
    parser.add_argument("store", type=Path, metavar="STORE", help="file of results, as compare writes it")
    add_outcome(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Write the report of every comparison in the file."""
    from ..lab import Comparison

    comparisons = [one for one in Comparison.from_store(chosen.store) if one.finished()]
    if not comparisons:
        raise ValueError(f"expected finished runs in {chosen.store} (got none)")
    baseline = _baseline(chosen.baseline, comparisons)
    folder = chosen.out or default_folder(chosen.store)
    found = []
    for number, comparison in enumerate(comparisons, 1):
        if len(comparisons) > 1 and not chosen.json:
            show(f"{'' if number == 1 else chr(10)}{comparison.title()}\n", style="bold")
        place = folder / str(number) if len(comparisons) > 1 else folder
        mine = baseline if baseline in comparison.norms() else None
        found.append(tell(comparison, place, mine, quiet=chosen.json))
    if chosen.json:
        print_json(found)
    return 0


def _baseline(spec: str | None, comparisons: list[Comparison]) -> str | None:
    """The norm as spelled in the store; of several comparisons, some may not have it."""
    from ..lab.choices import canonical_spelling, known

    if spec is None:
        return None
    try:
        norms = dict.fromkeys(norm for comparison in comparisons for norm in comparison.norms())
        return known(canonical_spelling(spec), norms, "baseline")
    except ValueError as error:
        raise Mistake(error) from error
