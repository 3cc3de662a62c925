"""``geonorm norms``: all normalizations by name."""

from __future__ import annotations

import argparse

from .parser import Commands, Parser, add_json, print_json
from .terminal import show

_EPILOG = """\
A name takes the arguments of its layer, in quotes for the shell:
  geonorm compare --norms bn "augbn(phi=1.2)" "pop(kappa=4)"
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "all normalizations by name, with a line each"
    parser = commands.add_parser("norms", help=text, description=text, epilog=_EPILOG)
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the list."""
    from ..nn import norms

    if chosen.json:
        print_json(norms())
        return 0
    width = max(map(len, norms()))
    for name, line in norms().items():
        show(f"{name:{width}}  {line}")
    return 0
