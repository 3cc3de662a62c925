"""Optimizers and averaged copies of a model that were made before a change of its parameters."""

from __future__ import annotations

import gc

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
        # type() and not isinstance: some objects answer isinstance with code of their own.
        alive = gc.get_objects() if gone or new or renamed else []
        for holder in alive:
            if issubclass(type(holder), Optimizer):
                held = {id(p) for group in holder.param_groups for p in group["params"]}
                if held & self._before.keys() and (held & gone or new - held):
                    notes.append(
                        f"{type(holder).__name__} was made before this change: it holds {len(held & gone)} parameters "
                        f"that are no longer in the model and lacks {len(new - held)} new ones; create it again"
                    )
            elif issubclass(type(holder), AveragedModel) and renamed and set(holder.module.state_dict()) == self._names:
                notes.append("an AveragedModel was copied from the old model: create it again, or convert it too")
        return notes
