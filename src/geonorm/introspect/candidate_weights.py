"""The weights that may be scale invariant, and the blocks of rows in which to test them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from .graph import Graph
from .layouts import layout_of
from .shared_channels import TRANSPOSED


class Weight(NamedTuple):
    """A weight to test: its name, that of its module's bias, the dimension that counts its rows, likely groups."""

    name: str
    bias: str | None
    dim: int
    can_split: bool
    groups: int | None


def weights_of(model: nn.Module, graph: Graph) -> Iterator[Weight]:
    """Every parameter of two dimensions or more, once."""
    seen: set[int] = set()
    modules = dict(model.named_modules())
    groups = {}
    for name, near in graph.norms.items():
        layout = layout_of(modules[name])
        if near.before is not None and layout is not None and layout.axes == "group":
            groups[near.before] = int(layout.arguments["groups"])
    for owner, module in modules.items():
        prefix = f"{owner}." if owner else ""
        # The raw tensor of a parametrized weight is two modules down; the bias belongs to the outer module.
        outer = re.sub(r"\.?parametrizations\..+$", "", owner)
        home = modules[outer]
        bias = home._parameters.get("bias")
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() < 2 or id(parameter) in seen or not parameter.is_floating_point():
                continue
            seen.add(id(parameter))
            partner = None if bias is None or bias is parameter else f"{outer}.bias" if outer else "bias"
            transposed = isinstance(home, TRANSPOSED)
            can_split = not (transposed and home.groups != 1)
            yield Weight(prefix + name, partner, 1 if transposed else 0, can_split, groups.get(outer))


def candidates(rows: int, weight: Weight) -> list[int]:
    """Numbers of equal blocks of rows to test, the finest first; with a GroupNorm after it, its groups."""
    if not weight.can_split:
        return [1]
    divisors = [d for d in range(rows, 0, -1) if rows % d == 0]
    if weight.groups is None:
        return divisors
    return [d for d in divisors if d == rows or weight.groups % d == 0]
