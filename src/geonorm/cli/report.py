"""``geonorm report``: the report of results that are there."""

from __future__ import annotations

import argparse
from pathlib import Path

from .outcome import add_outcome, default_folder, tell
from .parser import Commands, Parser, add_json, print_json

_EPILOG = """\
A file that holds several comparisons, of different data, models or settings, gives a folder for each.

examples:
  geonorm report out/compare.sqlite
  geonorm report out/compare.sqlite --baseline ln --out report
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "the table, the answer and the page of results that are there, finished or not"
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
    folder = chosen.out or default_folder(chosen.store)
    found = []
    for number, comparison in enumerate(comparisons, 1):
        if len(comparisons) > 1 and not chosen.json:
            print(f"{'' if number == 1 else chr(10)}{comparison.title()}\n")
        place = folder / str(number) if len(comparisons) > 1 else folder
        found.append(tell(comparison, place, chosen.baseline, quiet=chosen.json))
    if chosen.json:
        print_json(found)
    return 0
