"""The known table: the unit in which each normalization makes the weight before it, or under it, scale invariant.

| normalization | unit |
| --- | --- |
| BatchNorm, InstanceNorm, GraphNorm; weight norm, weight standardization, centered weight norm | each row |
| GroupNorm | the rows of a group |
| LayerNorm, RMSNorm; spectral norm | the whole matrix |
"""

from __future__ import annotations

from torch import nn
from torch.nn.utils import parametrizations, parametrize

from ..nn.weightnorm import _RowNorm
from ..surgery.layouts import layout_of
from ..surgery.pairs import Graph

_OF_AXES = {"batch": "row", "instance": "row", "graph": "row", "group": "group", "layer": "matrix"}
# A normalization of the weight itself: where it keeps the raw tensor, and its unit.
_OF_WEIGHTS: list[tuple[type[nn.Module], str, str]] = [
    (parametrizations._SpectralNorm, "original", "matrix"),
    (parametrizations._WeightNorm, "original1", "row"),
    (_RowNorm, "original", "row"),
]
_FINER = {"matrix": 0, "group": 1, "row": 2}


def expected_units(model: nn.Module, graph: Graph) -> dict[str, str]:
    """What the table says, by the name of the parameter; weights that it does not know are left out."""
    modules = dict(model.named_modules())
    said: list[tuple[str, str]] = []
    for name, near in graph.norms.items():
        unit = _unit_of(modules[name])
        if near.behind is not None and unit is not None:
            raws = ("weight", "parametrizations.weight.original", "parametrizations.weight.original1")
            said += [(f"{near.behind}.{raw}", unit) for raw in raws]
    for name, module in modules.items():
        if isinstance(module, parametrize.ParametrizationList):
            said += [(f"{name}.{raw}", unit) for kind, raw, unit in _OF_WEIGHTS if isinstance(module[0], kind)]
    own = dict(model.named_parameters())
    expected: dict[str, str] = {}
    for name, unit in said:
        if name in own and _FINER[unit] >= _FINER[expected.get(name, "matrix")]:
            expected[name] = unit
    return expected


def _unit_of(norm: nn.Module) -> str | None:
    layout = layout_of(norm)
    if layout is None:
        if isinstance(norm, nn.RMSNorm):
            return "matrix"
        return "row" if isinstance(norm, nn.SyncBatchNorm) else None
    if layout.axes == "group":
        groups = layout.arguments["groups"]
        return "matrix" if groups == 1 else "row" if groups == layout.channels else "group"
    return _OF_AXES[layout.axes]
