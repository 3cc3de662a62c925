"""Attributes that a user has added to a norm: whatever its class does not create, parameters and buffers included."""

from __future__ import annotations

import torch
from torch import nn

from ..introspect.layouts import fresh_like
from .conversion_record import RECORD, NormPlaceholder

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_ITS_OWN = ("_compiled_call_impl", "_geonorm_trained", RECORD)


def carry_user_attributes(old: nn.Module, new: nn.Module) -> list[str]:
    """Move them to a replacement, the same objects; returns the names that mean something else there."""
    made, reserved = _made_by_class(old), _made_by_class(new)
    lost = []
    for registry in (*_REGISTRIES, "__dict__"):
        mine, theirs = getattr(old, registry), getattr(new, registry)
        for name, value in list(mine.items()):
            if name in made or (value is None and name not in theirs):
                continue
            if name in reserved or (hasattr(new, name) and name not in theirs):
                lost.append(name)
                continue
            theirs[name] = value
            if name in old._non_persistent_buffers_set:
                new._non_persistent_buffers_set.add(name)
    return lost


def _made_by_class(module: nn.Module) -> set[str]:
    """The attributes that any module of this kind has."""
    with torch.device("meta"):
        fresh = NormPlaceholder(False) if isinstance(module, NormPlaceholder) else fresh_like(module)
    made = module if fresh is None else fresh  # an unknown class: all its attributes count as its own
    return set(_ITS_OWN).union(made.__dict__, *(made.__dict__[registry] for registry in _REGISTRIES))
