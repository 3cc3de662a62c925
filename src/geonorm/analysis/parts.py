"""The parts of weights that are scale invariant, as views for arithmetic: rows, groups of rows, whole matrices.

Where the invariance is joint in weight and bias (LayerNorm or GroupNorm behind an operation with a bias), a part is one
of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from ..surgery.layouts import layout_of
from ..surgery.pairs import trace
from .invariance import Unit
from .known_invariances import expected_units


class Parts(NamedTuple):
    """One weight and how it falls into parts.

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
    """The parts that the known table says, read from the model's structure without running it."""
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    graph = trace(model)
    behind = {near.behind: modules[name] for name, near in graph.norms.items() if near.behind is not None}
    found = []
    for name, kind in expected_units(model, graph).items():
        owner = name.split(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
        owner = "" if name.startswith("parametrizations.") else owner
        operation = modules[owner]
        dim = 1 if "Transpose" in type(operation).__name__ and name == f"{owner}.weight" else 0
        number = {"row": parameters[name].shape[dim], "matrix": 1}.get(kind)
        bias = None
        if owner in behind:
            layout = layout_of(behind[owner])
            number = int(layout.arguments["groups"]) if number is None and layout is not None else number
            named = f"{owner}.bias" if owner else "bias"
            joint = kind != "row" and named in parameters and _keeps_bias(behind[owner])
            bias = named if joint else None
        found.append(Parts(name, bias, kind, number or 1, dim))
    return found


def _keeps_bias(norm: nn.Module) -> bool:
    """Whether the bias before a norm reaches its output: batch and instance norms take it away with the mean."""
    layout = layout_of(norm)
    return layout is None or layout.axes in ("layer", "group")


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
