"""``geonorm diagnose``: what normalization does in a model of your own."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .parser import Commands, Parser, add_json, from_1, print_json, sample_shape, where_and_name
from .streams import results_alone

_EPILOG = """\
examples:
  geonorm diagnose --model my_model.py:make_model --data my_model.py:make_batches
  geonorm diagnose --model my_package.models:make --state best.pt --input-shape 3,32,32
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "what normalization does in a model, and whether it is healthy"
    parser = commands.add_parser("diagnose", help=text, description=text, epilog=_EPILOG)
    parser.add_argument(
        "--model",
        type=where_and_name,
        required=True,
        metavar="WHERE:NAME",
        help="a function that gives the model: module:name or file.py:name",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="a state_dict to load into it (tensors only)")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", type=where_and_name, metavar="WHERE:NAME", help="a function that gives batches: tensors or (x, y)"
    )
    source.add_argument(
        "--input-shape", type=sample_shape, metavar="3,32,32", help="random inputs of this shape instead of data"
    )
    parser.add_argument("--batch-size", type=from_1, default=64, help="of random inputs (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/diagnose.html"), help="the page (default: %(default)s)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Look at the model, write the page, print the findings; 1 if the model does not run."""
    from ..analysis import diagnose
    from ..lab import loading
    from ..lab.bars import busy
    from ..surgery.progress import without_bars

    with results_alone():
        model = loading.load_model(chosen.model, chosen.state)
        batches: Iterable[Any] = (
            loading.random_batches(model, chosen.input_shape, chosen.batch_size)
            if chosen.data is None
            else loading.load_batches(chosen.data)
        )
        with busy("looking at the model"), without_bars():
            found = diagnose(model, batches, synthetic=chosen.data is None)
    path = found.to_html(chosen.out)
    if chosen.json:
        print_json(found.to_dict())
    else:
        print(f"{found}\n\nPage: {path}")
    return int(any(finding.kind == "does not run" for finding in found.findings))
