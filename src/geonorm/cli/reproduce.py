"""``geonorm reproduce``: the tables and figures of the papers, run here."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

from .device import add_device, device_here
from .parser import Commands, Mistake, Parser, add_json, add_workers, print_json
from .repository import from_repository
from .terminal import show

_DESCRIPTION = """\
Run a table or figure of the papers, scaled to minutes on a laptop or with the full published protocol, and write a page
with the published figures next to ours and a verdict on every claim. Stop at any time: the same command continues.
"""
_EPILOG = """\
examples:
  geonorm reproduce --list
  geonorm reproduce popnorm-kappa
  geonorm reproduce augnorm-graphs --preset paper --workers 2
  geonorm reproduce augnorm-graphs --preset paper --smoke     a minute or less, to see that it runs
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "reproduce",
        help="do the papers hold? their tables and figures, run here",
        usage="geonorm reproduce (--list | NAME) [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("study", nargs="?", metavar="NAME", help="name of the study, see --list")
    parser.add_argument("--list", action="store_true", help="all studies, with what they show and how long they take")
    parser.add_argument("--preset", default="laptop", choices=("laptop", "paper"), help="(default: %(default)s)")
    parser.add_argument("--smoke", action="store_true", help="a minimal run on synthetic data, to show that it works")
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds, instead of the preset's")
    add_device(parser, "cpu", default="cpu")
    add_workers(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("out/reproduce"), help="folder for results and pages (default: %(default)s)"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """List the studies, or run one and write its page."""
    studies = studies_of_the_papers()

    if chosen.list:
        return _list(studies, chosen.json)
    if chosen.study is None:
        raise Mistake("expected the NAME of a study; see geonorm reproduce --list")
    if chosen.seeds is not None and chosen.seeds < 1:
        raise Mistake(f"expected --seeds to be a number from 1 (got {chosen.seeds})")
    device = device_here(chosen.device)
    try:
        studies.study(chosen.study)
    except ValueError as error:
        raise Mistake(error) from error
    found = studies.reproduce(
        chosen.study,
        chosen.preset,
        smoke=chosen.smoke,
        device=device,
        seeds=chosen.seeds,
        folder=chosen.out,
        workers=chosen.workers,
        progress=True,
    )
    page = studies.write_page(chosen.study, found, chosen.out)
    verdicts = studies.study(chosen.study).page(found).verdicts
    if chosen.json:
        print_json({"page": str(page), "runs": len(found.records), "verdicts": [one._asdict() for one in verdicts]})
        return 0
    for one in verdicts:
        show(f"{one.claim}: {one.verdict} ({one.why})")
    show(f"\nPage: {page}")
    return 0


def studies_of_the_papers() -> ModuleType:
    """The package ``studies`` of the repository."""
    return from_repository("studies", "reproduce", "reproduce STUDY=NAME")


def _list(studies: ModuleType, as_json: bool) -> int:
    from ..html.text import table

    known = studies.studies()
    if as_json:
        print_json(
            [
                {
                    **{key: getattr(one, key) for key in ("name", "line", "source")},
                    "minutes": dict(one.minutes),
                    "estimated_hours": studies.estimated_hours().get(one.name, {}),
                }
                for one in known
            ]
        )
        return 0
    rows = [
        [
            one.name,
            _time(one.minutes["laptop"]),
            _time(one.minutes["paper"]) if "paper" in one.minutes else studies.paper_time(one.name),
            one.line,
        ]
        for one in known
    ]
    show("\n".join(table(["study", "laptop", "paper", "what it shows"], rows)))
    show(f"\n{studies.ABOUT_HOURS}")
    return 0


def _time(minutes: float) -> str:
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:g} h"
