"""The same model, data and seeds under several norms: with the data and models of this library, or with your own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .check import check_at_hand, check_names
from .devices import check_device
from .factories import OWN_NORMS, Factories, MakeData, MakeModel, code_of, is_own, name_of
from .loading import named_object
from .orchestrate import orchestrate
from .recipe import Recipe, Run
from .rescue import opened
from .results import Comparison
from .runner import Watch
from .source import Source


def run(
    recipe: Recipe, store: str | Path = "out/lab.sqlite", workers: int | str = 1, watch: Watch | None = None
) -> Comparison:
    """Execute a recipe; runs whose results are already in the store are not repeated.

    Args:
        recipe: what to compare.
        store: the results file.
        workers: as in ``executors.execute``.
        watch: called after every epoch.
    """
    return _execute(planned(recipe, store), None, workers, watch)


def compare(
    make_model: MakeModel,
    make_data: MakeData,
    norms: str | Sequence[str] = OWN_NORMS,
    losses: str | Sequence[str] = ("erm",),
    seeds: int | Sequence[int] = 5,
    *,
    corruptions: str | Sequence[str] = Recipe.corruptions,
    evaluations: str | Sequence[str] = Recipe.evaluations,
    folds: int = Recipe.folds,
    epochs: int = Recipe.epochs,
    batch_size: int = Recipe.batch_size,
    optimizer: str = Recipe.optimizer,
    lr: float = Recipe.lr,
    momentum: float = Recipe.momentum,
    weight_decay: float = Recipe.weight_decay,
    decay: str = Recipe.decay,
    milestones: Sequence[float] = Recipe.milestones,
    augment: str | Sequence[str] = Recipe.augment,
    clip_inputs: float = Recipe.clip_inputs,
    clip_gradients: float = Recipe.clip_gradients,
    skip_nonfinite: bool = Recipe.skip_nonfinite,
    threads: int = Recipe.threads,
    processes: int = Recipe.processes,
    device: str = Recipe.device,
    precision: str = Recipe.precision,
    store: str | Path = "out/compare.sqlite",
    workers: int | str = 1,
    watch: Watch | None = None,
) -> Comparison:
    """Train your own model on your own data under several norms, with the same first weights and batches.

    Args:
        make_model: a function that returns a new model. Its norms are converted; ``"own"`` among ``norms`` keeps them.
        make_data: a function that returns (train, test), datasets or loaders of (input, label), or a ``Task``.
        norms: specs, see ``geonorm.norms()``.
        losses: ``"erm"``, ``"cvar(alpha=0.2)"``, ...
        seeds: how many, or which.
        corruptions, evaluations, folds: as in ``Recipe``.
        epochs, batch_size, optimizer, lr, momentum, weight_decay, decay, milestones, augment: as in ``Recipe``.
        clip_inputs, clip_gradients, skip_nonfinite, threads, processes, device, precision: as in ``Recipe``.
        store: the results file. Its runs are identified by the names and the source of the two functions, but not of
            the code that these call: use another file if that has changed.
        workers: as in ``executors.execute``; several need functions that can be imported.
        watch: called after every epoch.

    Examples:
        >>> import tempfile, torch
        >>> from geonorm.lab import compare
        >>> def make_model():
        ...     return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        >>> def make_data():
        ...     x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
        ...     samples = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
        ...     return samples, samples
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     norms = ["own", "median"]
        ...     found = compare(make_model, make_data, norms, seeds=1, epochs=2, store=f"{folder}/my.sqlite")
        ...     len(found.finished())
        2
    """
    recipe = Recipe(
        data=name_of(make_data),
        model=name_of(make_model),
        norms=norms,  # type: ignore[arg-type]
        losses=losses,  # type: ignore[arg-type]
        corruptions=corruptions,  # type: ignore[arg-type]
        evaluations=evaluations,  # type: ignore[arg-type]
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        folds=folds,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        decay=decay,
        milestones=milestones,  # type: ignore[arg-type]
        augment=augment,  # type: ignore[arg-type]
        clip_inputs=clip_inputs,
        clip_gradients=clip_gradients,
        skip_nonfinite=skip_nonfinite,
        threads=threads,
        processes=processes,
        device=device,
        precision=precision,
    )
    check_device(recipe.device)
    check_names(recipe)
    comparison = Comparison(tuple(_with_code(recipe, make_model, make_data)), opened(store))
    return _execute(comparison, Factories(make_model, make_data), workers, watch)


def planned(recipe: Recipe, store: str | Path) -> Comparison:
    """The comparison of a recipe, without executing any run; raises if data or functions are missing."""
    check_device(recipe.device)
    check_names(recipe)
    check_at_hand(recipe)
    own = [named_object(name, what) for what, name in (("model", recipe.model), ("data", recipe.data)) if is_own(name)]
    return Comparison(tuple(_with_code(recipe, *own) if own else recipe.runs()), opened(store))


def _with_code(recipe: Recipe, *functions: Callable[..., Any]) -> list[Run]:
    """Runs that are also identified by the source of the user's functions, so that changed ones run again."""
    code = code_of(*functions)
    return [Run({**one.choices, "code": code}) for one in recipe.runs()]


def _execute(comparison: Comparison, source: Source | None, workers: int | str, watch: Watch | None) -> Comparison:
    outcome = orchestrate(comparison.runs, comparison.store, source, workers, watch)
    if outcome.failure is not None:
        raise outcome.failure
    if outcome.left:
        warnings.warn(outcome.elsewhere(), stacklevel=3)
    return comparison
