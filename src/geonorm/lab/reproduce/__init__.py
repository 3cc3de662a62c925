"""Every table and figure of the papers as a named study, at the paper's scale or a laptop's."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from ..check import check_at_hand
from ..choices import known
from ..executors import execute
from ..progress import shown
from ..store import Store
from . import page, results
from .results import Results
from .study import PRESETS, SMOKE, Study

__all__ = ["PRESETS", "SMOKE", "Study", "reproduce", "studies", "study", "write_page"]

_HOMES = {
    "augnorm-graphs": "augnorm_graphs",
    "geometry-moments": "geometry_moments",
    "geometry-growth": "geometry_growth",
    "geometry-robustness": "geometry_robustness",
    "geometry-sphere": "geometry_sphere",
    "geometry-prune": "geometry_prune",
    "geometry-batch": "geometry_batch",
    "popnorm-kappa": "popnorm_kappa",
    "popnorm-ablation": "popnorm_ablation",
    "popnorm-accuracy": "popnorm_accuracy",
    "popnorm-imagenet": "popnorm_imagenet",
    "popnorm-theory": "popnorm_theory",
    "augnorm-cifar": "augnorm_cifar",
    "augnorm-shift": "augnorm_shift",
    "augnorm-phi": "augnorm_phi",
    "augnorm-corruptions": "augnorm_corruptions",
}


def studies() -> list[Study]:
    """All studies."""
    return [study(name) for name in _HOMES]


def study(name: str) -> Study:
    """A study by name; a misspelt one is answered with the closest."""
    home = import_module(f".{_HOMES[known(name, _HOMES, 'study')]}", __name__)
    found: Study = home.STUDY
    return found


def reproduce(
    name: str,
    preset: str = "laptop",
    *,
    seeds: int | None = None,
    folder: str | Path = "out/reproduce",
    workers: int | str = 1,
    progress: bool = False,
) -> Results:
    """Run a study. Trainings in the store or in the results file are not repeated; the file is written in the end.

    Args:
        name: of the study, see ``studies()``.
        preset: ``"laptop"``, ``"paper"``, or ``"smoke"``, which only shows that it runs.
        seeds: how many, in place of the preset's own.
        folder: for ``NAME/PRESET.jsonl`` and the store of unfinished work.
        workers: as in ``executors.execute``.
        progress: show on stderr how the runs get on.
    """
    chosen, folder = study(name), Path(folder)
    parts = chosen.plan(known(preset, (*PRESETS, SMOKE), "preset"))
    for recipe in parts.values():
        check_at_hand(recipe)
    if seeds is not None:
        parts = {part: replace(recipe, seeds=tuple(range(seeds))) for part, recipe in parts.items()}
    path, store = folder / name / f"{preset}.jsonl", Store(folder / f"{name}.sqlite")
    found = results.collect(parts, store, chosen.curves, results.read(path), chosen.ends)
    done = {record.key for record in found.records}
    waiting = [run for recipe in parts.values() for run in recipe.runs() if run.key not in done]
    try:  # all at once: processes that are started for every part would read the data anew each time
        with shown(waiting, store) if progress and waiting else nullcontext():
            execute(waiting, store, workers=workers)
    finally:
        found = results.collect(parts, store, chosen.curves, found, chosen.ends)
        results.write(found, path)
    return found


def write_page(name: str, found: Results, folder: str | Path) -> Path:
    """The page of a study from its results; its path. That of another preset than the laptop's says so in its name."""
    chosen = study(name)
    command = f"geonorm reproduce {name} --preset {found.preset}"
    titled = name if found.preset == PRESETS[0] else f"{name}-{found.preset}"
    return page.write(titled, chosen.line, chosen.source, command, chosen.read(found), Path(folder))
