"""``geonorm completion``: a script that makes the shell complete commands, options and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from .parser import Commands, Parser
from .reproduce import studies_of_the_papers

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
    from ..lab.data import sources
    from ..lab.extras import require
    from ..lab.models import models
    from ..lab.repository import find_root
    from ..nn import norms
    from . import make_parser

    shtab = require("shtab", "shtab")
    parser = make_parser()
    data = [source.name for source in sources()]
    words = {"norms": list(norms()), "baseline": list(norms()), "model": [name for name, _ in models()]}
    words |= dict.fromkeys(("data", "name", "names"), data)
    if find_root("studies") is not None:
        words["study"] = [study.name for study in studies_of_the_papers().studies()]
    for action in _actions(parser):
        if action.type is Path or action.dest == "out" or action.metavar == "WHERE:NAME":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in words and not action.choices:
            action.choices = words[action.dest]
    print(shtab.complete(parser, chosen.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
