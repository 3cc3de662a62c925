"""Optimizers and averaged copies of a model that were made before a change of its parameters."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel


class StaleOptimizers:
    """The parameters of a model before a change, for comparison with those after it."""

    def __init__(self, model: nn.Module) -> None:
        self._before = {id(parameter): parameter for parameter in model.parameters()}
        self._names = set(model.state_dict())

    def notes(self, model: nn.Module) -> list[str]:
        """Notes on the existing optimizers and averaged copies that the user must create again."""
        after = {id(parameter) for parameter in model.parameters()}
        gone, new = self._before.keys() - after, after - self._before.keys()
        renamed = set(model.state_dict()) != self._names
        notes = []
        for holder in _instances(Optimizer, AveragedModel) if gone or new or renamed else []:
            if issubclass(type(holder), Optimizer):
                held = {id(p) for group in holder.param_groups for p in group["params"]}
                if held & self._before.keys() and (held & gone or new - held):
                    notes.append(
                        f"{type(holder).__name__} was made before this change: it holds {len(held & gone)} parameters "
                        f"that are no longer in the model and lacks {len(new - held)} new ones; create it again"
                    )
            elif renamed and set(holder.module.state_dict()) == self._names:
                notes.append("an AveragedModel was copied from the old model: create it again, or convert it too")
        return notes


def _instances(*bases: type[Any]) -> list[Any]:
    """All objects of some classes that are alive.

    A long session has millions of objects and few of these, so first all are compared by the identity of their type,
    which runs in C. Neither asks an object: some answer isinstance with code of their own.
    """
    wanted = {id(kind) for base in bases for kind in _with_subclasses(base)}
    alive: list[Any] = gc.get_objects()
    if wanted.isdisjoint(map(id, map(type, alive))):
        return []
    return [one for one in alive if id(type(one)) in wanted]


def _with_subclasses(base: type[Any]) -> Iterator[type[Any]]:
    yield base
    for kind in base.__subclasses__():
        yield from _with_subclasses(kind)
