"""The modules of a model that a verb acts on: names, places, and the ``where`` argument."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

Where: TypeAlias = str | Sequence[str] | Callable[[str, nn.Module], bool] | None


def check_model(model: nn.Module, verb: str, *, replaces: bool = False) -> None:
    """Raise unless given a model, and not a wrapper that would not notice replaced modules."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module to {verb} (got {type(model).__name__})")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValueError(f"expected a model that is not scripted (got a ScriptModule); {verb} it before scripting")
    if replaces and isinstance(model, (DistributedDataParallel, DataParallel)):
        raise ValueError(
            f"expected the model itself (got {type(model).__name__}, which has already counted its parameters); "
            f"{verb} the model first, then wrap it"
        )


class Places:
    """Modules by name, each once, and all places of modules that are shared."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._spots: dict[int, list[tuple[nn.Module, str]]] = {}
        for parent in model.modules():
            for attribute, child in parent._modules.items():
                if child is not None:
                    self._spots.setdefault(id(child), []).append((parent, attribute))

    def __iter__(self) -> Iterator[tuple[str, nn.Module]]:
        yield from list(self.model.named_modules())

    def replace(self, old: nn.Module, new: nn.Module) -> None:
        """Replace a module by another in all its places."""
        spots = self._spots.get(id(old), [])
        for parent, attribute in spots:
            parent._modules[attribute] = new
        self._spots[id(new)] = spots


def chosen(model: nn.Module, where: Where) -> Callable[[str, nn.Module], bool]:
    """A predicate for the modules that ``where`` selects. A pattern that matches nothing is an error."""
    if where is None:
        return lambda name, module: True
    if callable(where):
        return where
    patterns = [where] if isinstance(where, str) else list(where)
    names = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            close = difflib.get_close_matches(pattern, names, n=3)
            hint = f"; close are {', '.join(close)}" if close else ""
            raise ValueError(f"where={pattern!r} matches no module of the model{hint}")
    also = _other_names(model)
    return lambda name, module: any(
        _matches(candidate, pattern) for candidate in also.get(id(module), [name]) for pattern in patterns
    )


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches the module or one that contains it."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:i]), pattern) for i in range(1, len(parts) + 1))


def _other_names(model: nn.Module) -> dict[int, list[str]]:
    """All names of each module; a shared one may be selected by any of them."""
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    return names
