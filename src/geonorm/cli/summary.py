"""``geonorm summary``: every norm of a model of your own, in a line each."""

from __future__ import annotations

import argparse

from .own import add_data_or_shape, add_model, load
from .parser import Commands, Parser, add_json, print_json
from .streams import results_alone
from .terminal import show

_EPILOG = """\
examples:
  geonorm summary --model my_model.py:make_model --data my_model.py:make_batches
  geonorm summary --model my_package.models:make --state best.pt --input-shape 3,32,32
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "every norm of a model in one line: what it normalizes over, and its state"
    parser = commands.add_parser("summary", help=text, description=text, epilog=_EPILOG)
    add_model(parser)
    add_data_or_shape(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Look at the model, print the table."""
    from ..analysis import summary
    from ..introspect.progress import without_bars
    from ..lab.bars import busy

    with results_alone():
        model, batches = load(chosen)
        with busy("looking at the model"), without_bars():
            found = summary(model, batches)
    if chosen.json:
        print_json(found.to_dict())
    else:
        show(str(found))
    return 0
