"""``geonorm screen``: which samples of a data set look broken to a model of your own."""

from __future__ import annotations

import argparse
from pathlib import Path

from .device import add_device, device_here
from .own import add_model
from .parser import Commands, Mistake, Parser, add_json, print_json, where_and_name
from .streams import results_alone
from .terminal import show

_EPILOG = """\
examples:
  geonorm screen --model my_model.py:make_model --data my_model.py:make_batches
  geonorm screen --model my_package.models:make --state best.pt --data my_data.py:loader --out page.html
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "the broken samples of a data set, found without labels in a model's layers"
    parser = commands.add_parser("screen", help=text, description=text, epilog=_EPILOG)
    add_model(parser)
    parser.add_argument(
        "--data",
        type=where_and_name,
        required=True,
        metavar="WHERE:NAME",
        help="a function that returns batches in a fixed order: tensors or (x, y)",
    )
    parser.add_argument(
        "--cut", type=float, default=6.0, help="the score above which a sample looks broken (default: %(default)s)"
    )
    add_device(parser, "where the function puts the model")
    parser.add_argument("--out", type=Path, default=Path("out/screen.html"), help="the page (default: %(default)s)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Look at the samples, write the page, print the table."""
    from ..introspect.progress import without_bars
    from ..lab import loading
    from ..lab.bars import busy
    from ..robust import screen

    if not 1 <= chosen.cut < float("inf"):
        raise Mistake(f"expected --cut to be a number from 1 (got {chosen.cut})")
    device = None if chosen.device is None else device_here(chosen.device)
    with results_alone():
        model = loading.load_model(chosen.model, chosen.state)
        if device is not None:
            model.to(device)
        with busy("looking at the samples"), without_bars():
            found = screen(model, loading.load_batches(chosen.data), cut=chosen.cut)
            path = found.to_html(chosen.out, loading.load_batches(chosen.data))  # again: a generator is exhausted
    if chosen.json:
        print_json(found.to_dict())
    else:
        headline, *rest = str(found).split("\n")
        show(headline, style="warning" if found.broken else "good")
        show("\n".join([*rest, "", f"Page: {path}"]))
    return 0
