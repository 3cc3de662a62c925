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
    chosen = parser.parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
    except (ImportError, OSError, ValueError) as error:
        print(f"geonorm: {error}", file=sys.stderr)
        return 1
    return code


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
