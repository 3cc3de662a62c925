"""``geonorm data``: list, fetch and check data."""

from __future__ import annotations

import argparse
import sys

from .parser import Commands, Mistake, Parser, add_json, print_json
from .terminal import show

_EPILOG = """\
Data are looked up in the folder GEONORM_DATA, then in ~/.cache/geonorm. Nothing is downloaded without being asked.

examples:
  geonorm data list
  geonorm data fetch cifar10
  geonorm data check cifar10 mutag
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command and its three actions."""
    text = "data by name: list, fetch, check"
    parser = commands.add_parser("data", help=text, description=text, epilog=_EPILOG)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", title="actions")
    line = "all known data, whether they are at hand, where, and how to get them"
    listed = actions.add_parser("list", help=line, description=line)
    add_json(listed)
    listed.set_defaults(run=run_list)
    line = "download data that have a published checksum, and check it"
    fetched = actions.add_parser("fetch", help=line, description=line)
    fetched.add_argument("name", metavar="NAME", help="see: geonorm data list")
    fetched.set_defaults(run=run_fetch)
    line = "read all data and verify checksums and counts where they are known; exit code 1 if something is wrong"
    checked = actions.add_parser("check", help=line, description=line)
    checked.add_argument("names", metavar="NAME", nargs="*", help="which (default: all that are at hand)")
    add_json(checked)
    checked.set_defaults(run=run_check)


def run_list(chosen: argparse.Namespace) -> int:
    """Print the list."""
    from ..lab.data import sources

    found = sources()
    if chosen.json:
        print_json([source._asdict() for source in found])
        return 0
    width = max(len(source.name) for source in found)
    for source in found:
        show(f"{source.name:{width}}  {'at hand' if source.at_hand else 'missing'}  {source.line}")
        show(f"{'':{width}}           {source.where if source.at_hand else source.how}")
    return 0


def run_fetch(chosen: argparse.Namespace) -> int:
    """Fetch the data, and print where they are."""
    from ..lab.data import fetch

    _check_names([chosen.name])
    print(f"{chosen.name}: {fetch(chosen.name).where}")
    return 0


def run_check(chosen: argparse.Namespace) -> int:
    """Check the data, and print the result; 1 if something is wrong."""
    from ..lab.bars import busy
    from ..lab.data import check, sources

    _check_names(chosen.names)
    found = []
    for name in chosen.names or [source.name for source in sources() if source.at_hand]:
        with busy(f"reading {name}"):
            found.append(check(name))
        if not chosen.json:
            good = found[-1].good
            show(f"{name}: {found[-1].said}", sys.stdout if good else sys.stderr, style=None if good else "error")
    if chosen.json:
        print_json([checked._asdict() for checked in found])
    return int(not all(checked.good for checked in found))


def _check_names(names: list[str]) -> None:
    from ..lab.data import check_name

    try:
        for name in names:
            check_name(name)
    except ValueError as error:
        raise Mistake(error) from error
