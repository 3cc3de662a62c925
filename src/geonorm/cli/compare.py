"""``geonorm compare``: the same training under several norms."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .device import add_device
from .outcome import add_outcome, default_folder, tell
from .parser import Commands, Mistake, Parser, add_json, add_workers, name_or_function, print_json
from .streams import results_alone

if TYPE_CHECKING:
    from ..lab import Recipe

_DESCRIPTION = """\
Train the same model on the same data under several norms, with the same initial weights and batches, and compare.

Without a recipe, --data and --model: digits, a small network and eight norms, on clean samples and with one in ten
broken; about two minutes. Options override fields of the recipe. Stop at any time: the same command continues.
"""
_EPILOG = """\
examples:
  geonorm compare
  geonorm compare --norms bn "augbn(phi=1.2)" robustbn --corruptions "gain(share=0.05)" --seeds 3
  geonorm compare --data cifar10 --model resnet20 --norms bn "augbn(phi=1.5)" --epochs 30 --decay cosine
  geonorm compare recipe.toml --store out/mine.sqlite --workers 4
  geonorm compare --model my_file.py:make_model --data my_file.py:make_data --norms own "aug(phi=1.5)"
  geonorm compare --data cifar10 --model resnet18 --norms bn guardbn --device cuda
  torchrun --nproc-per-node 2 --no-python geonorm compare recipe.toml --processes 2
"""


def add(commands: Commands[Parser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compare",
        help="the same training under several norms: which is best here?",
        usage="geonorm compare [RECIPE] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("recipe", nargs="?", type=Path, metavar="RECIPE", help="a TOML file with fields of a recipe")
    fields = parser.add_argument_group("the recipe", argument_default=argparse.SUPPRESS)
    fields.add_argument(
        "--data",
        type=name_or_function,
        metavar="NAME",
        help="see geonorm data list; or file.py:function of your own, which returns the data sets (train, test)",
    )
    fields.add_argument(
        "--model",
        type=name_or_function,
        metavar="NAME",
        help="such as mlp or resnet20; or file.py:function of your own, which returns the model",
    )
    for name, text in (
        ("norms", "see geonorm norms; own keeps the norms of your own model"),
        ("losses", "such as erm or 'cvar(alpha=0.2)'"),
        ("corruptions", "of the training samples, such as clean or 'offset(share=0.1)'"),
        ("evaluations", "of the trained model, such as clean or 'noise(std=0.25)'"),
    ):
        fields.add_argument(f"--{name}", nargs="+", metavar="SPEC", help=text)
    fields.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="N",
        help="how many, or which. Four times as many halve the intervals; fewer than five tell little",
    )
    fields.add_argument("--folds", type=int, metavar="N", help="of a cross-validation")
    fields.add_argument("--epochs", type=int, metavar="N", help="of each training")
    fields.add_argument("--batch-size", type=int, metavar="N", help="samples in a batch")
    fields.add_argument("--optimizer", metavar="NAME", help="sgd, adam or sphere_sgd")
    fields.add_argument("--lr", type=float, metavar="X", help="learning rate")
    fields.add_argument("--decay", metavar="NAME", help="of the learning rate: constant, linear, cosine or step")
    fields.add_argument("--threads", type=int, metavar="N", help="that one process may use")
    fields.add_argument("--processes", type=int, metavar="N", help="that train one model together, under torchrun")
    add_device(fields, "cpu")
    add_workers(parser)
    parser.add_argument(
        "--store", type=Path, default=Path("out/compare.sqlite"), help="file of results (default: %(default)s)"
    )
    add_outcome(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Execute the unfinished runs with a progress display, then print and write the results."""
    from ..lab.bars import say
    from ..lab.check import check_installed
    from ..lab.comparison import planned
    from ..lab.orchestrate import orchestrate

    recipe = _recipe(chosen)
    with results_alone():
        check_installed()
        comparison = planned(recipe, chosen.store)
    try:
        with results_alone():
            outcome = orchestrate(comparison.runs, comparison.store, workers=chosen.workers, progress=True)
    except KeyboardInterrupt:
        kept = f"{len(comparison.finished())} of {len(comparison.runs)} runs are done and stored"
        say(f"\nStopped: {kept}. To continue, run the same command:\n  {chosen.line}")
        return 130
    if outcome.leads and outcome.left < outcome.asked:
        found = tell(comparison, chosen.out or default_folder(chosen.store), chosen.baseline, quiet=chosen.json)
        if chosen.json:
            print_json({**found, "already": outcome.already})
    if outcome.failure is not None:
        raise outcome.failure
    if outcome.left:
        raise RuntimeError(outcome.elsewhere())
    return 0


def _recipe(chosen: argparse.Namespace) -> Recipe:
    """The recipe of the file or the built-in one, with the fields that options change."""
    from dataclasses import fields, replace

    from ..lab.check import check_names
    from ..lab.choices import canonical_spelling, known
    from ..lab.devices import check_device
    from ..lab.factories import OWN_NORMS, is_own
    from ..lab.recipe import DIGITS, Recipe

    given = {field.name: getattr(chosen, field.name) for field in fields(Recipe) if hasattr(chosen, field.name)}
    if len(given.get("seeds", ())) == 1:
        given["seeds"] = range(*given["seeds"])
    try:
        if chosen.recipe is None and is_own(given.get("model", "")):
            given.setdefault("norms", OWN_NORMS)
        from_scratch = chosen.recipe is None and ("data" in given or "model" in given)
        recipe = replace(Recipe() if from_scratch else Recipe.from_toml(chosen.recipe or DIGITS), **given)
        check_device(recipe.device)
        check_names(recipe)
        if chosen.baseline is not None:
            chosen.baseline = known(canonical_spelling(chosen.baseline), recipe.norms, "baseline")
    except ValueError as error:
        raise Mistake(error) from error
    return recipe
