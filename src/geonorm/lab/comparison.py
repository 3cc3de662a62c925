"""The same model, data and seeds under several norms: with the data and models of this library, or with your own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..surgery import convert
from .data import Split, Task
from .executors import execute
from .recipe import Recipe, Run
from .results import Comparison
from .runner import Source, Watch
from .store import Store

MakeModel = Callable[[], nn.Module]
MakeData = Callable[[], Any]


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
    return _carry_out(recipe.runs(), store, None, workers, watch)


def compare(
    make_model: MakeModel,
    make_data: MakeData,
    norms: Sequence[str] = ("bn", "augbn(phi=1.5)", "robustbn", "gn(groups=1)"),
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
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    specs = [norm for norm in norms if norm != "own"]
    recipe = Recipe(
        data=_name(make_data),
        model=_name(make_model),
        norms=tuple(specs) or ("bn",),
        losses=tuple(losses),
        seeds=chosen,
        **training,
    )
    runs = recipe.runs() if specs else []
    if "own" in norms:
        first = specs[0] if specs else "bn"
        runs = [Run({**one.choices, "norm": "own"}) for one in recipe.runs() if one["norm"] == first] + runs
    return _carry_out(runs, store, Factories(make_model, make_data), workers, watch)


@dataclass(frozen=True)
class Factories:
    """Data and models that functions make."""

    make_model: MakeModel
    make_data: MakeData

    def task(self, run: Run) -> Task:
        """The data as a task."""
        made = self.make_data()
        if isinstance(made, Task):
            return made
        try:
            train, test = (_split(part) for part in made)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"expected make_data to give (train, test) or a Task (got {type(made).__name__}: {error})"
            ) from error
        classes = int(torch.cat([train.y, test.y]).max()) + 1
        return Task(run["data"], train, test, classes, tuple(train.tensor().shape[1:]))

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model, converted."""
        model = self.make_model()
        if run["norm"] == "own":
            return model
        done = convert(model, run["norm"])
        if done.left and not done.changed:  # trained as it is, it would pass for the norm
            reasons = "; ".join(dict.fromkeys(left.reason for left in done.left))
            raise ValueError(f"expected {run['norm']} to replace a norm of the model (got none that it can: {reasons})")
        return model


def _split(data: Split | Dataset[Any] | DataLoader[Any] | Iterable[Any]) -> Split:
    """All samples of a dataset or loader, in memory."""
    if isinstance(data, Split):
        return data
    if isinstance(data, Dataset):
        pairs = [data[i] for i in range(len(data))]  # type: ignore[arg-type]
        return Split(torch.stack([torch.as_tensor(x) for x, _ in pairs]), torch.tensor([int(y) for _, y in pairs]))
    batches = list(data)
    inputs: list[Tensor] = [x for x, _ in batches]
    return Split(torch.cat(inputs), torch.cat([y for _, y in batches]).long())


def _carry_out(
    runs: Sequence[Run], path: str | Path, source: Source | None, workers: int | str, watch: Watch | None
) -> Comparison:
    store = Store(path)
    execute(runs, store, source, workers, watch)
    return Comparison(tuple(runs), store)


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
