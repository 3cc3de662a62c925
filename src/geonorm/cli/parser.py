"""The parser of all commands: an error suggests the closest valid name."""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..html.text import visible
from .help_format import HelpFormatter, headings_bold
from .terminal import fitted, in_color, is_terminal, terminal_width

Commands = argparse._SubParsersAction  # what ``add`` of a command takes


class Mistake(Exception):
    """A mistake on the command line that only the lab detects; exit code 2, as for errors of the parser."""


class Parser(argparse.ArgumentParser):
    """argparse's parser, with a hint at the closest known command, option or choice; no abbreviations."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", HelpFormatter)
        super().__init__(**{**settings, "allow_abbrev": False})
        self.set_defaults(parser=self)
        self._given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; remembers the arguments for the hints."""
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse, but unexpected arguments are reported by the command they were meant for."""
        chosen, rest = self.parse_known_args(args, namespace)
        if rest:
            chosen.parser.error(f"unexpected {' '.join(rest)}")
        return chosen

    def error(self, message: str) -> NoReturn:
        """Print the error, with the closest known option for every unknown one."""
        options = [option for option in self._option_string_actions if option.startswith("--")]
        names = [given.split("=")[0] for given in self._given if given.startswith("--") and given != "--"]
        unknown = [name for name in names if name not in options]
        hints = [f"{given}: {closest(given, options)}" for given in unknown if closest(given, options)]
        super().error("; ".join([message, *hints]))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help and errors, fitted to a terminal."""
        message = visible(message or "")
        if message and file is not None and is_terminal(file):
            message = fitted(message, terminal_width())
            message = headings_bold(message) if in_color(file) else message
        super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = f"{closest(value, action.choices)} known: {', '.join(action.choices)}".strip()
            raise argparse.ArgumentError(action, f"unknown {value!r}; {known}")


def closest(word: str, words: Iterable[str]) -> str:
    """A hint at the word that was meant; empty if none is near.

    Examples:
        >>> from geonorm.cli.parser import closest
        >>> closest("--sed", ["--seeds", "--store"])
        'did you mean --seeds?'
    """
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"did you mean {close[0]}?" if close else ""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare the option that all commands with results for scripts share."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON, and nothing else, on stdout")


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Declare the option that all commands that train share."""
    parser.add_argument(
        "--workers", type=_workers, metavar="N", help="trainings at a time, or ray (default: one for each core, or GPU)"
    )


def _workers(text: str) -> int | str:
    if text == "ray" or "://" in text:
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, ray, or ray://... (got {text!r})")
    return int(text)


def where_and_name(text: str) -> str:
    """A user's own model or data, as an option names it."""
    where, _, name = text.rpartition(":")
    if not where or not name:
        there = _functions_in(text) if text.endswith(".py") else ""
        raise argparse.ArgumentTypeError(f"expected module:function or file.py:function (got {text!r}){there}")
    return text


def _functions_in(path: str) -> str:
    """For a message: what a file has to offer, found without running it."""
    if not os.path.isfile(path):
        return f"; {path} does not exist"
    try:
        with open(path, "rb") as file:
            defined = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [f"{path}:{made.name}" for made in defined if isinstance(made, ast.FunctionDef)]
    return f"; name one of {', '.join(names)}" if names else f"; {path} defines no function"


def name_or_function(text: str) -> str:
    """The name of data or a network of this library, or a user's own function."""
    return where_and_name(text) if text.endswith(".py") else text


def sample_shape(text: str) -> tuple[int, ...]:
    """The size of one sample, as 3,32,32 or 3x32x32."""
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected the size of one sample, such as 3,32,32 (got {text!r})")
    return tuple(map(int, parts))


def positive_int(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 (got {text!r})")
    return int(text)


def print_json(value: Any) -> None:
    """Print a value as JSON, in ASCII so that any pipe takes it; NaN and Inf become null."""
    print(json.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
