"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``geonorm``; returns the exit code."""
    parser = argparse.ArgumentParser(prog="geonorm", description="Geometric normalization for PyTorch.")
    parser.add_argument("--version", action="version", version=f"geonorm {version('geonorm')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="the center of a contaminated sample for φ from 1 to ∞")
    demo.add_argument(
        "--out", type=Path, default=Path("out/demo.png"), help="picture file, .png or .svg (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)
    info = commands.add_parser("info", help="versions, the backend in use and why, instruction set, threads")
    info.set_defaults(run=_info)
    bench = commands.add_parser("bench", help="speed and memory as ratios to torch's own layers, in one run")
    bench.add_argument(
        "--full", action="store_true", help="all shapes and peers: under 15 minutes (default: under one)"
    )
    bench.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for results (default: %(default)s)")
    bench.set_defaults(run=_bench)
    _add_diagnose(commands)
    chosen = parser.parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"geonorm: {error}", file=sys.stderr)
        return 1
    return code


def _add_diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diagnose = commands.add_parser("diagnose", help="what normalization does in a model, and whether it is healthy")
    diagnose.add_argument(
        "--model",
        required=True,
        metavar="WHERE:NAME",
        help="a function that gives the model: module:name or file.py:name",
    )
    diagnose.add_argument("--state", type=Path, metavar="FILE", help="a state_dict to load into it (tensors only)")
    source = diagnose.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="WHERE:NAME", help="a function that gives batches: tensors or (x, y)")
    source.add_argument("--input-shape", metavar="3,32,32", help="random inputs of this shape instead of data")
    diagnose.add_argument("--batch-size", type=int, default=64, help="of random inputs (default: %(default)s)")
    diagnose.add_argument("--out", type=Path, default=Path("out/diagnose.html"), help="the page (default: %(default)s)")
    diagnose.add_argument("--json", action="store_true", help="print everything as JSON")
    diagnose.set_defaults(run=_diagnose)


def _demo(chosen: argparse.Namespace) -> int:
    from ..lab import demo

    rows = demo.rows()
    print(demo.table(rows))
    demo.picture(rows, chosen.out)
    print(f"\nPicture: {chosen.out}")
    return 0


def _info(chosen: argparse.Namespace) -> int:
    from ..lab import info

    for name, value in info.facts().items():
        print(f"{name + ':':17}{value}")
    return 0


def _bench(chosen: argparse.Namespace) -> int:
    from ..lab import bench

    results = bench.run(chosen.full)
    print()
    print(bench.table(results))
    bench.append(results, chosen.out / "results.csv")
    print(f"Results: {chosen.out / 'results.csv'}")
    return 0


def _diagnose(chosen: argparse.Namespace) -> int:
    import json

    from ..analysis import diagnose
    from ..lab import loading

    model = loading.load_model(chosen.model, chosen.state)
    if chosen.data is None:
        found = diagnose(model, loading.random_batches(model, chosen.input_shape, chosen.batch_size), synthetic=True)
    else:
        found = diagnose(model, loading.load_batches(chosen.data))
    path = found.to_html(chosen.out)
    if chosen.json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print(f"{found}\n\nPage: {path}")
    return int(any(finding.kind == "does not run" for finding in found.findings))
