"""A norm that belongs to an operation: before it, as its ``pre_norm``, or on its weight; and off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from ..nn.specs import Spec
from ..nn.weightnorm import centered_weight_norm, weight_standardization
from .layouts import factory_of
from .memory import own_state
from .pairs import input_channels, spatial_dim

PRE_NORM = "pre_norm"
_FIRST_WEIGHT = "_geonorm_weight"
_ON_WEIGHTS: dict[str, Callable[..., nn.Module]] = {
    "wn": weight_norm,
    "ws": weight_standardization,
    "cwn": centered_weight_norm,
    "sn": spectral_norm,
}


class _FirstWeight(NamedTuple):
    """A weight before it was parametrized, and the state of the parametrization in its first moment."""

    weight: Tensor
    state: dict[str, Tensor]


def normalize_input(operation: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The hook by which an operation normalizes its input with its ``pre_norm``."""
    return (operation.pre_norm(inputs[0]), *inputs[1:])


def why_not_onto(name: str, operation: nn.Module, spec: Spec) -> str:
    """Why an operation cannot take the norm; empty if it can."""
    if spec.norm.before and PRE_NORM in operation._modules:
        return f"{name} already has a norm before it"
    if parametrize.is_parametrized(operation):
        return f"the weight of {name} is parametrized already"
    return ""


def put_before(operation: nn.Module, spec: Spec) -> nn.Module:
    """A norm of the operation's input channels before it."""
    build = spec.norm.build
    assert build is not None
    layer = build(input_channels(operation), spatial_dim(operation), **spec.arguments, **factory_of(operation))
    layer.train(operation.training)
    operation.add_module(PRE_NORM, layer)
    operation.register_forward_pre_hook(normalize_input)
    return layer


def put_onto_weight(operation: Any, spec: Spec) -> None:
    """The weight of the operation parametrized."""
    weight = operation.weight.detach().clone()
    _ON_WEIGHTS[spec.norm.name](operation, **spec.arguments)
    operation.__dict__[_FIRST_WEIGHT] = _FirstWeight(weight, _parametrization_state(operation))


@torch.no_grad()
def take_off(operation: Any) -> str:
    """Undo either; says what was there. A weight that was not trained meanwhile is again what it was, bit for bit."""
    if PRE_NORM in operation._modules:
        layer = operation._modules.pop(PRE_NORM)
        for key, hook in list(operation._forward_pre_hooks.items()):
            if hook is normalize_input:
                del operation._forward_pre_hooks[key]
        return f"{type(layer).__name__} before"
    if not parametrize.is_parametrized(operation, "weight"):
        return ""
    kind = type(operation.parametrizations.weight[0]).__name__.lstrip("_")
    first: _FirstWeight | None = operation.__dict__.pop(_FIRST_WEIGHT, None)
    untouched = first is not None and _same(_parametrization_state(operation), first.state)
    parametrize.remove_parametrizations(operation, "weight", leave_parametrized=True)
    if first is not None and untouched:
        operation.weight.copy_(first.weight)
    return f"{kind} on the weight of"


def _parametrization_state(operation: Any) -> dict[str, Tensor]:
    parametrizations = operation.parametrizations.weight
    parts = [own_state(parametrizations), *[own_state(part) for part in parametrizations]]
    return {f"{i}.{name}": value.clone() for i, part in enumerate(parts) for name, value in part.items()}


def _same(now: dict[str, Tensor], then: dict[str, Tensor]) -> bool:
    return now.keys() == then.keys() and all(
        value.is_meta or torch.equal(value, then[name].to(value)) for name, value in now.items()
    )
