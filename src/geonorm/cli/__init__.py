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
