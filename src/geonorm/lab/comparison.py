"""The same model, data and seeds under several norms: with the data and models of this library, or with your own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..surgery.report import table
from .check import check_at_hand, check_names
from .executors import execute
from .own import OWN_NORMS, Factories, MakeData, MakeModel
from .recipe import Recipe, Run
from .runner import Source, Watch
from .store import Finished, Store


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        runs: the trainings that were asked for.
        store: where all figures are.
    """

    runs: tuple[Run, ...]
    store: Store

    def finished(self) -> list[Finished]:
        """The trainings of this comparison that are done."""
        wanted = {run.key for run in self.runs}
        return [run for run in self.store.finished() if run.key in wanted]

    def table(self) -> str:
        """Mean accuracy in per cent and its standard deviation over seeds, one line per norm."""
        cells = self._cells()
        columns = list(dict.fromkeys(column for _, column in cells))
        lines = []
        for norm in dict.fromkeys(norm for norm, _ in cells):
            values = [cells.get((norm, column), []) for column in columns]
            lines.append([norm, *[_mean_and_deviation(value) for value in values]])
        return "\n".join(table(["norm", *columns], lines))

    def curves(self) -> dict[str, list[dict[str, Any]]]:
        """The figures of every run, epoch by epoch, by its key."""
        return {run.key: self.store.curve(run.key) for run in self.runs}

    def _cells(self) -> dict[tuple[str, str], list[float]]:
        cells: dict[tuple[str, str], list[float]] = {}
        several = {name: len({run[name] for run in self.runs}) > 1 for name in ("loss", "corruption")}
        for run in self.finished():
            about = [run.choices[name] for name, is_axis in several.items() if is_axis]
            for evaluation, figures in run.figures.items():
                column = ", ".join([*about, *([evaluation] if len(run.figures) > 1 or not about else [])])
                cells.setdefault((run.choices["norm"], column), []).append(100 * figures["accuracy"])
        return cells


def run(
    recipe: Recipe, store: str | Path = "out/lab.sqlite", workers: int | str = 1, watch: Watch | None = None
) -> Comparison:
    """Carry out a recipe; what is in the store already is not repeated.

    Args:
        recipe: what to compare.
        store: the results file.
        workers: as in ``executors.execute``.
        watch: told of every epoch.
    """
    check_names(recipe)
    check_at_hand(recipe)
    return _carry_out(recipe.runs(), store, None, workers, watch)


def compare(
    make_model: MakeModel,
    make_data: MakeData,
    norms: Sequence[str] = OWN_NORMS,
    losses: Sequence[str] = ("erm",),
    seeds: int | Sequence[int] = 5,
    *,
    store: str | Path = "out/compare.sqlite",
    workers: int | str = 1,
    watch: Watch | None = None,
    **training: Any,
) -> Comparison:
    """Train your own model on your own data under several norms, with the same first weights and batches.

    Args:
        make_model: a function that gives a new model. Its norms are converted; ``"own"`` among ``norms`` leaves them.
        make_data: a function that gives (train, test): datasets or loaders of (input, label), or a ``Task``.
        norms: specs, see ``geonorm.norms()``.
        losses: ``"erm"``, ``"cvar(alpha=0.2)"``, ...
        seeds: how many, or which.
        store: the results file. Runs in it are known by the names of the two functions: change the name or the file
            when you change what they do.
        workers: as in ``executors.execute``; several need functions that can be imported.
        watch: told of every epoch.
        training: fields of ``Recipe``: epochs, batch_size, lr, corruptions, evaluations, ...

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
        data=_name(make_data),
        model=_name(make_model),
        norms=tuple(norms),
        losses=tuple(losses),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        **training,
    )
    return _carry_out(recipe.runs(), store, Factories(make_model, make_data), workers, watch)


def _carry_out(
    runs: Sequence[Run], path: str | Path, source: Source | None, workers: int | str, watch: Watch | None
) -> Comparison:
    store = Store(path)
    execute(runs, store, source, workers, watch)
    return Comparison(tuple(runs), store)


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _mean_and_deviation(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")
