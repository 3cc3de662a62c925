"""``geonorm demo``: the center of a contaminated sample."""

from __future__ import annotations

import argparse
from pathlib import Path

from .parser import Commands, Parser

_EPILOG = """\
example:
  geonorm demo --out demo.svg
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "the center of a sample with outliers for φ from 1 to ∞, as a table and a picture"
    parser = commands.add_parser("demo", help=text, description=text, epilog=_EPILOG)
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo.png"), help="picture file, .png or .svg (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the table, draw the picture."""
    from ..lab import demo

    rows = demo.rows()
    print(demo.table(rows))
    demo.picture(rows, chosen.out)
    print(f"\nPicture: {chosen.out}")
    return 0
