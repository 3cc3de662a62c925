"""``geonorm info``: facts about this installation."""

from __future__ import annotations

import argparse

from .parser import Commands, Parser, add_json, print_json
from .terminal import show


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "versions, the backend in use and why, instruction set, threads"
    parser = commands.add_parser("info", help=text, description=text)
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the facts."""
    from ..lab import info

    facts = info.facts()
    if chosen.json:
        print_json(facts)
        return 0
    for name, value in facts.items():
        show(f"{name + ':':17}{value}")
    return 0
