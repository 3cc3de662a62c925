"""The origin of tensors in a running model: the module that made them, the dropout before them, their channels."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

# Functions that normalize: dropout before them affects what they measure, but no norm after them.
_NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
_SWAPS = {"transpose", "transpose_", "swapaxes", "swapdims"}


class Origin(NamedTuple):
    """The known facts about a tensor.

    Attributes:
        module: the module that returned it, if nothing has changed it since.
        channels: the dimension that counts channels; ``None`` if that is not known.
        dropout: dropout applied to it since the last norm: the probability, by the name of the layer.
    """

    module: str = ""
    channels: int | None = None
    dropout: Mapping[str, float] = {}


class Lineage:
    """The origins of tensors that are still alive."""

    def __init__(self) -> None:
        self._origins: dict[int, tuple[weakref.ref[Tensor], int, Origin]] = {}

    def of(self, x: Any) -> Origin:
        """The known facts about a tensor; without the module if the tensor was changed in place."""
        reference, version, origin = self._origins.get(id(x), (None, 0, Origin()))
        if not isinstance(x, Tensor) or reference is None or reference() is not x:
            return Origin()
        return origin if x._version == version else origin._replace(module="")

    def set(self, x: Tensor, origin: Origin) -> None:
        """Record the origin of a tensor."""
        self._origins[id(x)] = weakref.ref(x), x._version, origin

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any, inside: str) -> None:
        """Derive the origin of a function's output from its inputs; ``inside``: the module that called it."""
        if not isinstance(out, Tensor):
            return
        name = getattr(function, "__name__", "")
        given = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
        origins = [self.of(leaf) for leaf in given]
        dropout: dict[str, float] = {}
        if name not in _NORMS:
            for origin in origins:
                dropout.update(origin.dropout)
        if "dropout" in name:
            p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            dropout[inside] = float(p)
        known = next(
            ((x, origin) for x, origin in zip(given, origins, strict=True) if origin.channels is not None), None
        )
        channels = None if known is None else _channels(name, args, known[0], known[1].channels, out)
        module = self.of(out).module  # a function that returns its input has made nothing
        if module or channels is not None or dropout:
            self.set(out, Origin(module, channels, dropout))


def _channels(name: str, args: tuple[Any, ...], x: Tensor, channels: int | None, out: Tensor) -> int | None:
    """The dimension of the channels after a function."""
    if channels is None:
        return None
    if name in _SWAPS:
        a, b = (int(d) % x.dim() for d in args[1:3])
        return b if channels == a else a if channels == b else channels
    if name in ("permute", "movedim", "moveaxis") and out.dim() == x.dim():
        probe = torch.empty(list(range(2, 2 + x.dim())), device="meta")
        try:
            moved = getattr(probe, name)(*args[1:])
        except (RuntimeError, TypeError, IndexError):
            return None
        return list(moved.shape).index(channels + 2)
    if out.shape == x.shape:
        return channels
    if channels == x.dim() - 1 and out.dim() and out.shape[-1] == x.shape[-1]:  # flattened or cut in front of them
        return out.dim() - 1
    if channels == 1 and out.dim() == x.dim() and out.shape[1] == x.shape[1]:  # pooled
        return 1
    return None
