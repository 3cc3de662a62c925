"""Data and models of your own: what functions give, as runs need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..surgery import convert
from .data import Split, Task
from .recipe import OWN, Run

OWN_NORMS = (OWN, "aug(phi=1.5)", "aug(spread=robust)")  # for any model, over the groups of its own norms
MakeModel = Callable[..., nn.Module]
MakeData = Callable[..., Any]


@dataclass(frozen=True)
class Factories:
    """Data and models that functions make."""

    make_model: MakeModel
    make_data: MakeData

    def task(self, run: Run) -> Task:
        """The data as a task."""
        return as_task(self.make_data(**run["data_options"]), run["data"])

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model, converted."""
        return with_norm(self.make_model(**run["model_options"]), run["norm"])


def is_own(name: str) -> bool:
    """Whether a name of data or of a model is ``file.py:function`` or ``module:function``."""
    return ":" in name


def as_task(made: Any, name: str) -> Task:
    """What a function of data gave: a task, or (train, test)."""
    if isinstance(made, Task):
        return made
    try:
        train, test = (_split(part) for part in made)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"expected make_data to give (train, test) or a Task (got {type(made).__name__}: {error})"
        ) from error
    classes = int(torch.cat([train.y, test.y]).max()) + 1
    return Task(name, train, test, classes, tuple(train.tensor().shape[1:]))


def with_norm(model: Any, norm: str) -> nn.Module:
    """What a function of models gave, with its norms replaced; ``"own"`` leaves them.

    An error if nothing can be replaced: the run would be one of the model's own norms under another name.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected make_model to give a torch.nn.Module (got {type(model).__name__})")
    if norm == OWN:
        return model
    report = convert(model, norm)
    if report.left and not report.changed:
        reasons = "; ".join(dict.fromkeys(left.reason for left in report.left))
        raise ValueError(f"expected {norm} to replace a norm of the model (got none that it can: {reasons})")
    if not any("Norm" in type(part).__name__ for part in model.modules()) and not report.changed:
        raise ValueError(f"expected a model with norms, for {norm} to replace (got none)")
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
