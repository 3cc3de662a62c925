"""``geonorm demo``: the center of a contaminated sample."""

from __future__ import annotations

import argparse
from pathlib import Path

from .parser import Commands, Parser
from .terminal import show

_EPILOG = """\
example:
  geonorm demo --out demo.svg
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "the center of a sample with outliers for φ from 1 to ∞, as a table and a picture"
    parser = commands.add_parser("demo", help=text, description=text, epilog=_EPILOG)
    parser.add_argument(
        "--out",
        type=_picture_file,
        default=Path("out/demo.png"),
        help="picture file, .png or .svg (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def _picture_file(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".png", ".svg"):
        raise argparse.ArgumentTypeError(f"expected a file that ends with .png or .svg (got {text!r})")
    return path


def run(chosen: argparse.Namespace) -> int:
    """Print the table, draw the picture."""
    from ..lab import demo

    rows = demo.rows()
    show(demo.table(rows))
    demo.picture(rows, chosen.out)
    show(f"\nPicture: {chosen.out}")
    return 0
