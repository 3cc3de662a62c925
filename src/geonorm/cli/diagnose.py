"""``geonorm diagnose``: faults in your own model, and what to do about them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .device import add_device, device_here
from .own import add_data_or_shape, add_model, load
from .parser import Commands, Mistake, Parser, add_json, print_json
from .streams import results_alone
from .terminal import in_color, show

_EPILOG = """\
examples:
  geonorm diagnose --model my_model.py:make_model --data my_model.py:make_batches
  geonorm diagnose --model my_package.models:make --state best.pt --input-shape 3,32,32
  geonorm diagnose --model my_model.py:make_model --data my_model.py:make_batches --fix --save fixed.pt
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "what normalization does in a model, and whether it is healthy"
    parser = commands.add_parser("diagnose", help=text, description=text, epilog=_EPILOG)
    add_model(parser)
    add_data_or_shape(parser)
    parser.add_argument("--lr", type=float, metavar="RATE", help="the learning rate of its training")
    parser.add_argument("--fix", action="store_true", help="apply the safe fixes to a copy, and diagnose it again")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="with --fix, file for the state_dict of the fixed copy"
    )
    add_device(parser, "where the function puts the model")
    parser.add_argument("--out", type=Path, default=Path("out/diagnose.html"), help="the page (default: %(default)s)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Look at the model, write the page, print the findings; 1 if the model does not run."""
    if chosen.save is not None and not chosen.fix:
        raise Mistake("--save needs --fix: without it there is no fixed copy to save")
    import torch

    from ..analysis import diagnose
    from ..html.whole import replacing
    from ..introspect.progress import without_bars
    from ..lab.bars import busy

    device = None if chosen.device is None else device_here(chosen.device)
    if chosen.device == "mps":
        raise Mistake("expected --device auto, cpu or cuda (got mps): diagnose needs float64, which MPS does not have")
    with results_alone():
        model, batches = load(chosen)
        if device is not None:
            model.to("cpu" if device == "mps" else device)
        with busy("looking at the model"), without_bars():
            found = diagnose(model, batches, synthetic=chosen.data is None, lr=chosen.lr, fix=chosen.fix)
    path = found.to_html(chosen.out)
    if chosen.save is not None and found.fixed is not None:
        chosen.save.parent.mkdir(parents=True, exist_ok=True)
        state = found.fixed.state_dict()
        for name, value in state.items():  # to be read on any machine
            state[name] = value.cpu()
        with replacing(chosen.save) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
    if chosen.json:
        print_json(found.to_dict())
    else:
        saved = "" if chosen.save is None else f"\nState of the fixed copy: {chosen.save}"
        print(found.text(color=in_color(sys.stdout)))  # it has wrapped its lines itself
        show(f"\nPage: {path}{saved}")
    return int(any(finding.kind == "does not run" for finding in found.findings))
