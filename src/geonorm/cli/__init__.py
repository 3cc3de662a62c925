"""The command line: every command parses, calls the library, and prints; this file combines them."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from .._version import __version__
from . import bench, compare, completion, data, demo, diagnose, info, norms, report, reproduce, screen, summary
from .parser import Mistake, Parser
from .streams import replace_unencodable
from .terminal import show, styled

__all__ = ["main", "make_parser"]

_EPILOG = """\
examples:
  geonorm compare                                   eight norms on digits, clean and with broken samples: two minutes
  geonorm compare --model my.py:make_model --data my.py:make_data
  geonorm diagnose --model my.py:make_model --input-shape 3,32,32
  geonorm screen --model my.py:make_model --data my.py:batches
  geonorm COMMAND --help                            the options of a command, with examples

exit codes:
  0   success
  1   the command failed: a file or a function in it is missing, data are missing, runs failed
  2   the command line is wrong: an unknown command, option or name, a value out of range
  130 stopped by Ctrl-C
"""


def make_parser() -> Parser:
    """The parser with all commands."""
    parser = Parser(prog="geonorm", description="Geometric normalization for PyTorch.", epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"geonorm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for command in (compare, report, reproduce, data, norms, diagnose, summary, screen, demo, bench, info, completion):
        command.add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``geonorm``; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    replace_unencodable()
    chosen = make_parser().parse_args(given, argparse.Namespace(line=shlex.join(["geonorm", *given])))
    try:
        code: int = chosen.run(chosen)
        if sys.stdout is not None:
            sys.stdout.flush()
    except Mistake as mistake:
        chosen.parser.error(str(mistake))
    except KeyboardInterrupt:
        print("\ngeonorm: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has closed the pipe; without this the interpreter prints an error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        show(f"{styled('geonorm:', 'error', sys.stderr)} {error}", sys.stderr)
        return 1
    return code
