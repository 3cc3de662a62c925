"""Models and data from the user's own functions, as runs need them."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..introspect.layouts import is_norm
from ..surgery import convert
from .data import Task
from .recipe import OWN, Run
from .samples import in_memory
from .source import Source

OWN_NORMS = (OWN, "aug(phi=1.5)", "aug(spread=robust)")  # for any model, over the groups of its own norms
MakeModel = Callable[..., nn.Module]
MakeData = Callable[..., Any]


@dataclass(frozen=True)
class Factories(Source):
    """A source that calls the user's functions."""

    make_model: MakeModel
    make_data: MakeData

    def task(self, run: Run) -> Task:
        """The data as a task."""
        return as_task(self.make_data(**run["data_options"]), run["data"])

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model, converted."""
        return with_norm(self.make_model(**run["model_options"]), run["norm"])


def as_task(made: Any, name: str) -> Task:
    """A task from the return value of ``make_data``: a task, or (train, test)."""
    if isinstance(made, Task):
        return made
    try:
        if isinstance(made, DataLoader):  # one of two batches could be unpacked
            raise TypeError("a loader is no pair")
        train, test = made
    except (TypeError, ValueError) as error:
        got = f"{len(made)} values" if isinstance(made, tuple | list) else type(made).__name__
        raise ValueError(
            f"expected {name} to return (train, test) or a Task (got {got}); train and test are data sets of "
            "(input, label), such as those of torch.utils.data.random_split(samples, [400, 200])"
        ) from error
    train, test = in_memory(train, "train"), in_memory(test, "test")
    classes = int(torch.cat([train.y, test.y]).max()) + 1
    return Task(name, train, test, classes, tuple(train.tensor().shape[1:]))


def with_norm(made: Any, norm: str) -> nn.Module:
    """A copy of the model from ``make_model``, with its norms replaced; ``"own"`` keeps them."""
    if not isinstance(made, nn.Module):
        raise ValueError(f"expected make_model to return a torch.nn.Module (got {type(made).__name__})")
    model = copy.deepcopy(made)  # the function may return the same model every time, trained by then
    if norm != OWN:
        report = convert(model, norm)
        if report.left and not report.changed:
            raise ValueError(f"cannot convert the model to {norm!r}: {report.left[0].reason}")
        if not any(is_norm(module) for module in made.modules()):
            raise ValueError(f"expected a model with norms to replace by {norm!r} (got none)")
    return model


def is_own(name: str) -> bool:
    """Whether a name of data or a model is ``file.py:function`` or ``module:function``, and not one of this library."""
    return ":" in name


def name_of(function: Callable[..., Any]) -> str:
    """Module and name of a function; for a ``partial`` also its arguments."""
    if isinstance(function, functools.partial):
        given = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(given)})"
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def code_of(*functions: Callable[..., Any]) -> str:
    """A short hash of the source of functions, so that a changed function is not mistaken for the old one."""
    return hashlib.sha256("".join(map(_source, functions)).encode()).hexdigest()[:8]


def _source(function: Callable[..., Any]) -> str:
    """The source of a function, if it is available."""
    if isinstance(function, functools.partial):
        return _source(function.func)
    try:
        return inspect.getsource(function if hasattr(function, "__qualname__") else type(function))
    except (OSError, TypeError):
        return ""
