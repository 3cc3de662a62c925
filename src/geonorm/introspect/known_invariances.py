"""The known table: the unit in which each normalization makes a weight scale invariant: that of the operation before

it, or the weight that it normalizes itself.

| normalization | unit |
| --- | --- |
| BatchNorm, InstanceNorm, GraphNorm; weight norm, weight standardization, centered weight norm | each row |
| GroupNorm | the rows of a group |
| LayerNorm, RMSNorm; spectral norm; weight norm along other dimensions | the whole matrix |

The table is used without running a model, so uncertain cases are left out: norms that use running statistics,
weights used in several places, weights made by an unknown parametrization, norms over other axes than the
operation's outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn
from torch.nn.utils import parametrizations, parametrize

from ..nn._base import NormLayer
from ..nn.weightnorm import _RowNorm
from .graph import Graph, is_operation
from .layouts import is_frozen, layout_of
from .shared_channels import TRANSPOSED, could_share_channels, measures_batch

_FINER = {"matrix": 0, "group": 1, "row": 2}


class Known(NamedTuple):
    """The table's entry for one weight.

    Attributes:
        kind: ``"row"``, ``"group"`` or ``"matrix"``.
        number: how many parts may be scaled separately.
        bias: name of the bias that must be scaled with the weight, or ``None``.
        dim: the dimension of the weight that counts its output rows.
    """

    kind: str
    number: int
    bias: str | None
    dim: int


def known_units(model: nn.Module, graph: Graph, *, as_trained: bool = False) -> dict[str, Known]:
    """The table's entries for the weights of a model, by the name of the parameter; unknown weights are left out.

    ``as_trained``: norms that are not frozen count as if they were in training mode.
    """
    modules, own = dict(model.named_modules()), dict(model.named_parameters())
    places = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    found: dict[str, Known] = {}
    said = [*_before_norms(modules, graph, as_trained), *_under_parametrizations(modules)]
    for name, known in said:
        tensors = [own[n] for n in (name, known.bias) if n is not None and n in own]
        complete = name in own and (known.bias is None or known.bias in own)
        if not complete or own[name].dim() < 2 or any(places[id(tensor)] > 1 for tensor in tensors):
            continue
        if name not in found or _FINER[known.kind] >= _FINER[found[name].kind]:
            number = {"row": own[name].shape[known.dim], "matrix": 1}.get(known.kind, known.number)
            found[name] = known._replace(number=number)
    return found


def _before_norms(modules: dict[str, nn.Module], graph: Graph, as_trained: bool) -> Iterator[tuple[str, Known]]:
    for name, near in graph.norms.items():
        norm = modules[name]
        operation: Any = None if near.before is None else modules[near.before]
        if not is_operation(operation) or is_frozen(norm) or not (as_trained or measures_batch(norm)):
            continue
        unit = _unit_of(operation, norm)
        raw = _raw_weight(operation)
        if unit is None or raw is None:
            continue
        kind, number = unit
        prefix = f"{near.before}." if near.before else ""
        bias = f"{prefix}bias" if operation.bias is not None and _keeps_bias(norm) else None
        yield f"{prefix}{raw}", Known(kind, number, bias, 1 if isinstance(operation, TRANSPOSED) else 0)


def _under_parametrizations(modules: dict[str, nn.Module]) -> Iterator[tuple[str, Known]]:
    """Weights that are normalized themselves: nothing else uses the raw tensor."""
    for name, module in modules.items():
        if isinstance(module, parametrize.ParametrizationList) and (found := _normalization(module)) is not None:
            raw, kind = found
            yield f"{name}.{raw}", Known(kind, 1, None, 0)


def _normalization(chain: parametrize.ParametrizationList) -> tuple[str, str] | None:
    """The attribute with the raw tensor of a normalized weight, and its unit; ``None`` for other parametrizations."""
    only = chain[0] if len(chain) == 1 else None
    if isinstance(only, parametrizations._SpectralNorm):
        return "original", "matrix"
    if isinstance(only, parametrizations._WeightNorm):
        return "original1", "row" if only.dim == 0 else "matrix"
    return ("original", "row") if isinstance(only, _RowNorm) else None


def _raw_weight(operation: nn.Module) -> str | None:
    """The tensor whose rows are parallel to those of the operation's weight; ``None`` if that is not known."""
    if not parametrize.is_parametrized(operation, "weight"):
        return "weight"
    if isinstance(operation, TRANSPOSED):  # parametrizations count rows in dimension 0, these do not
        return None
    chain: Any = operation.parametrizations["weight"]  # type: ignore[index]
    found = _normalization(chain)
    # Weight norm along other dimensions mixes the rows.
    mixed = isinstance(chain[0], parametrizations._WeightNorm) and chain[0].dim != 0
    return None if found is None or mixed else f"parametrizations.weight.{found[0]}"


def _unit_of(operation: Any, norm: nn.Module) -> tuple[str, int] | None:
    layout = layout_of(norm)
    if isinstance(norm, nn.RMSNorm) or (layout is not None and layout.axes == "layer"):
        return "matrix", 1
    if not could_share_channels(operation, norm):
        return None
    # A transposed convolution with groups has one row for several outputs.
    if isinstance(operation, TRANSPOSED) and operation.groups != 1:
        return "matrix", 1
    if layout is not None and layout.axes == "group":
        groups = int(layout.arguments["groups"])
        return ("matrix" if groups == 1 else "row" if groups == layout.channels else "group"), groups
    return "row", 1


def _keeps_bias(norm: Any) -> bool:
    """Whether the bias before a norm affects its output: not if the norm subtracts the whole mean of a channel."""
    layout = layout_of(norm)
    if layout is None:
        return not isinstance(norm, nn.SyncBatchNorm)
    if isinstance(norm, NormLayer) and (bool(norm.learn_alpha) or norm.alpha_start != 1):
        return True
    by_channel = layout.axes in ("batch", "instance") or layout.arguments.get("groups") == layout.channels
    return not (by_channel or (layout.axes == "graph" and isinstance(norm, NormLayer)))
