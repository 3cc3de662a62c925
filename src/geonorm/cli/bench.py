"""``geonorm bench``: speed against torch's own layers."""

from __future__ import annotations

import argparse
from pathlib import Path

from .device import add_device, device_here
from .parser import Commands, Parser, add_json, print_json
from .repository import from_repository
from .terminal import show

_EPILOG = """\
Results of earlier calls stay in the file. Nothing else should run on the machine meanwhile.

examples:
  geonorm bench
  geonorm bench --device cuda
  geonorm bench --full --json > bench.json
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "speed and memory as ratios to torch's own layers, in one run"
    parser = commands.add_parser("bench", help=text, description=text, epilog=_EPILOG)
    parser.add_argument(
        "--full", action="store_true", help="all shapes and peers: a quarter of an hour (default: under one minute)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for results (default: %(default)s)")
    add_device(parser, "cpu", default="cpu")
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Measure, print the table, add to the file."""
    from dataclasses import asdict

    from ..lab.bars import busy

    speed = from_repository("benchmarks.speed", "bench", "bench")
    device = device_here(chosen.device)
    with busy(f"measuring on {device}") as say:
        results = speed.run(chosen.full, say, device=device)
    file = chosen.out / ("results.csv" if device == "cpu" else f"results-{device}.csv")
    speed.append(results, file)
    if chosen.json:
        print_json([asdict(result) for result in results])
    else:
        show(f"{speed.table(results)}\n{speed.about_machine(results)}\nResults: {file}")
    return 0
