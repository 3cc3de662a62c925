"""Every table and figure of the papers that has results, and questions of our own, as named studies."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from geonorm.lab.check import check_at_hand
from geonorm.lab.choices import known
from geonorm.lab.devices import CPU, check_device, find_device
from geonorm.lab.orchestrate import orchestrate
from geonorm.lab.rescue import opened

from . import adapt, data, models, page, results
from . import smoke as smokes
from .hours import ABOUT_HOURS, estimated_hours, paper_time
from .recipe import StudyRecipe, StudySource
from .results import Results
from .study import PRESETS, Study

data.register_all()
models.register_all()
adapt.register()

__all__ = [
    "ABOUT_HOURS",
    "PRESETS",
    "Study",
    "estimated_hours",
    "paper_time",
    "reproduce",
    "studies",
    "study",
    "write_page",
]

_HOMES = {
    "augnorm-graphs": "augnorm_graphs",
    "augnorm-cifar": "augnorm_cifar",
    "augnorm-shift": "augnorm_shift",
    "augnorm-phi": "augnorm_phi",
    "augnorm-corruptions": "augnorm_corruptions",
    "popnorm-kappa": "popnorm_kappa",
    "popnorm-ablation": "popnorm_ablation",
    "popnorm-accuracy": "popnorm_accuracy",
    "popnorm-imagenet": "popnorm_imagenet",
    "popnorm-theory": "popnorm_theory",
    "geometry-moments": "geometry_moments",
    "geometry-growth": "geometry_growth",
    "geometry-robustness": "geometry_robustness",
    "geometry-sphere": "geometry_sphere",
    "geometry-prune": "geometry_prune",
    "geometry-batch": "geometry_batch",
    "guard-digits": "guard_digits",
    "guard-cifar": "guard_cifar",
    "guard-adapt": "guard_adapt",
    "guard-limits": "guard_limits",
}


def studies() -> list[Study]:
    """All studies."""
    return [study(name) for name in _HOMES]


def study(name: str) -> Study:
    """A study by name; the error for an unknown name suggests the closest."""
    home = import_module(f".{_HOMES[known(name, _HOMES, 'study')]}", __name__)
    found: Study = home.STUDY
    return found


def reproduce(
    name: str,
    preset: str = "laptop",
    *,
    smoke: bool = False,
    seeds: int | None = None,
    device: str = CPU,
    folder: str | Path = "out/reproduce",
    workers: int | str | None = 1,
    progress: bool = False,
) -> Results:
    """Run a study. Trainings in the store or in the results file are not repeated; the file is written at the end.

    Args:
        name: of the study, see ``studies()``.
        preset: ``"laptop"`` or ``"paper"``.
        smoke: a minimal run on synthetic data, to show that the preset runs.
        seeds: how many, instead of the preset's own, counted from its first.
        device: where to train: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``; the results of each have their own file.
        folder: for ``NAME/PRESET.jsonl`` and the store of unfinished work; a smoke has its own ones.
        workers: as in ``executors.execute``; None for as many as there are cores.
        progress: show progress on stderr.
    """
    chosen, folder, device = study(name), Path(folder), find_device(device)
    check_device(device)
    parts = _parts(chosen, known(preset, PRESETS, "preset"), device)
    if smoke:
        parts = {part: smokes.shrunk(recipe) for part, recipe in parts.items()}
    check_at_hand(*parts.values())
    if seeds is not None:
        parts = {part: _with_seeds(recipe, seeds) for part, recipe in parts.items()}
    path = results.path_in(folder, name, preset, smoke=smoke, device=device)
    store = opened(folder / (f"{name}-smoke.sqlite" if smoke else f"{name}.sqlite"))
    found = results.collect(parts, store, chosen.curves, results.read(path), chosen.ends)
    done = {record.key for record in found.records}
    waiting = [run for recipe in parts.values() for run in recipe.runs() if run.key not in done]
    try:  # all parts at once, so that worker processes load the data only once
        outcome = orchestrate(waiting, store, StudySource(), workers=workers, progress=progress)
    finally:
        found = results.collect(parts, store, chosen.curves, found, chosen.ends)
        results.write(found, path)
    if outcome.failure is not None:
        raise outcome.failure
    return found


def write_page(name: str, found: Results, folder: str | Path) -> Path:
    """Write the page of a study; returns its path, which names a smoke and any preset other than the laptop's."""
    chosen = study(name)
    command = f"geonorm reproduce {name} --preset {found.preset}{_asked(chosen, found)}"
    titled = name if found.preset == PRESETS[0] else f"{name}-{found.preset}"
    if found.device != CPU:
        titled, command = f"{titled}-{found.device}", f"{command} --device {found.device}"
    line = f"{chosen.line}."
    missing = [] if found.smoke else _missing(chosen, found)
    if missing and found.records:
        line += f"\n\n**Not complete. Still to be trained: {'; '.join(missing)}.**"
    if found.smoke:
        titled, command, line = f"{titled}-smoke", f"{command} --smoke", f"{line}\n\n{smokes.SAID}"
    return page.write(titled, line, chosen.source, command, chosen.page(found), Path(folder))


def _parts(chosen: Study, preset: str, device: str) -> dict[str, StudyRecipe]:
    """The trainings of a preset on a device."""
    return {part: replace(recipe, device=device) for part, recipe in chosen.plan(preset).items()}


def _with_seeds(recipe: StudyRecipe, number: int) -> StudyRecipe:
    first = recipe.seeds[0]  # not always 0: a seed that was used to choose settings is left out
    return replace(recipe, seeds=tuple(range(first, first + number)))


def _asked(chosen: Study, found: Results) -> str:
    """The option ``--seeds`` of results with another number of seeds than the preset, if all parts have the same."""
    parts = chosen.plan(found.preset)
    numbers = {len({record.choices["seed"] for record in found.of(part)}) for part in parts}
    own = {len(recipe.seeds) for recipe in parts.values()}
    return "" if found.smoke or len(numbers) > 1 or numbers in (own, {0}) else f" --seeds {numbers.pop()}"


def _missing(chosen: Study, found: Results) -> list[str]:
    """Parts of a preset with unfinished trainings."""
    done = {record.key for record in found.records}
    parts = _parts(chosen, found.preset, found.device).items()
    return [part for part, recipe in parts if not done.issuperset(run.key for run in recipe.runs())]
