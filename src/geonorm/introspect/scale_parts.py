"""The parts of weights that are scale invariant, as views for arithmetic: rows, groups of rows, whole matrices.

Where the invariance is joint in weight and bias (LayerNorm or GroupNorm after an operation with a bias), a part
consists of both.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .graph import trace
from .invariance import Unit
from .known_invariances import known_units


class Parts(NamedTuple):
    """One weight and its division into parts.

    Attributes:
        parameter: its name in the model.
        bias: name of the bias that belongs to it, or ``None``.
        kind: ``"row"``, ``"group"`` or ``"matrix"``.
        number: how many parts.
        dim: the dimension of the weight that counts its output rows.
    """

    parameter: str
    bias: str | None
    kind: str
    number: int
    dim: int

    def members(self, model: nn.Module) -> list[tuple[nn.Parameter, int]]:
        """The tensors, each with the dimension that counts its rows."""
        found = [(model.get_parameter(self.parameter), self.dim)]
        return found if self.bias is None else [*found, (model.get_parameter(self.bias), 0)]


def parts_of(units: Iterable[Unit]) -> list[Parts]:
    """The parts that ``invariance`` found."""
    return [Parts(unit.parameter, unit.bias, unit.kind, unit.groups, unit.dim) for unit in units]


def parts_by_table(model: nn.Module) -> list[Parts]:
    """The parts according to the known table, read from the model's structure without running it.

    For the model's current mode: weights before norms that use running statistics are not invariant.
    """
    graph = trace(model)
    known = known_units(model, graph)
    waiting = (
        [] if model.training else [name for name in known_units(model, graph, as_trained=True) if name not in known]
    )
    if waiting:
        warnings.warn(
            f"the model is in evaluation, where the sizes of {len(waiting)} weights matter, unlike in training "
            f"({waiting[0]} is the first): they are left out; call model.train() first",
            stacklevel=3,
        )
    return [Parts(name, unit.bias, unit.kind, unit.number, unit.dim) for name, unit in known.items()]


@torch.no_grad()
def rescale(model: nn.Module, parts: Iterable[Parts], factor: float) -> None:
    """Multiply these weights by a factor. Outputs in training stay, up to eps; running statistics become stale."""
    for part in parts:
        for tensor, _ in part.members(model):
            tensor.mul_(factor)


def dots(a: Sequence[Tensor], b: Sequence[Tensor], dims: Sequence[int], number: int) -> Tensor:
    """⟨a, b⟩ of each part; a and b are lists of tensors that make up the parts together."""
    products = [
        (x * y).movedim(dim, 0).reshape(number, -1).sum(1) for x, y, dim in zip(a, b, dims, strict=True) if x.numel()
    ]
    return sum(products[1:], products[0])


def per_value(factors: Tensor, like: Tensor, dim: int) -> Tensor:
    """One number per part, in the shape that broadcasts to a tensor of these parts."""
    rows = factors.repeat_interleave(like.shape[dim] // len(factors))
    return rows.view([-1 if d == dim else 1 for d in range(like.dim())])
