"""``geonorm completion``: a script that makes the shell complete commands, options and names."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from .parser import Commands, Parser

_EPILOG = """\
  bash:  geonorm completion bash > ~/.local/share/bash-completion/completions/geonorm
  zsh:   geonorm completion zsh > ~/.zfunc/_geonorm        (with ~/.zfunc in fpath, before compinit)

Start a new shell afterwards.
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    text = "a script for the shell, which then completes commands, options and names"
    parser = commands.add_parser("completion", help=text, description=text, epilog=_EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh"), help="which shell")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the script."""
    from ..lab.extras import require
    from . import make_parser

    shtab = require("shtab", "shtab")
    parser = make_parser()
    names = known_names()
    words = {"norms": names["norm"], "baseline": names["norm"], "model": names["network"], "study": names["study"]}
    words |= dict.fromkeys(("data", "name", "names"), names["data"])
    for action in _actions(parser):
        if action.type is Path or action.dest == "out" or action.metavar == "WHERE:NAME":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif words.get(action.dest) and not action.choices:
            action.choices = words[action.dest]
    print(shtab.complete(parser, chosen.shell))
    return 0


def known_names() -> dict[str, list[str]]:
    """The names of norms, networks, data and studies: from a file, because the registries import torch."""
    from ..lab.repository import OF_STUDIES, find_root

    names: dict[str, list[str]] = json.loads(files("geonorm.cli").joinpath("names.json").read_text(encoding="utf-8"))
    if find_root("studies") is None:  # an installed package has no studies
        names = {kind: [name for name in of if name not in OF_STUDIES.get(kind, ())] for kind, of in names.items()}
        names["study"] = []
    return names


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
