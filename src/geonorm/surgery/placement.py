"""A norm that belongs to an operation: before it, as its ``pre_norm``, or on its weight; and off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from ..introspect.graph import has_own_forward, input_channels, is_linear, spatial_dim
from ..introspect.layouts import factory_of
from ..nn.specs import Spec
from ..nn.weightnorm import centered_weight_norm, weight_standardization
from .conversion_record import own_state, same_state

PRE_NORM = "pre_norm"
_FIRST_WEIGHT = "_geonorm_weight"
_ON_WEIGHTS: dict[str, Callable[..., nn.Module]] = {
    "wn": weight_norm,
    "ws": weight_standardization,
    "cwn": centered_weight_norm,
    "sn": spectral_norm,
}


class _FirstWeight(NamedTuple):
    """A weight before it was parametrized: the parameter, its values, and the parametrization's first state.

    Attributes:
        order: names of the operation's parameters; saved states of optimizers depend on their order.
    """

    parameter: Parameter
    values: Tensor
    state: dict[str, Tensor]
    order: tuple[str, ...]


def normalize_input(
    operation: Any, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The hook with which an operation normalizes its input by its ``pre_norm``."""
    if inputs:
        return (operation.pre_norm(inputs[0]), *inputs[1:]), named
    return inputs, {**named, "input": operation.pre_norm(named["input"])}


def is_pre_norm(operation: nn.Module) -> bool:
    """Whether an operation has a norm before it that this library put there."""
    return PRE_NORM in operation._modules and normalize_input in operation._forward_pre_hooks.values()


def check_on_weight(spec: Spec) -> None:
    """Raise for arguments that the parametrization does not take."""
    try:
        _ON_WEIGHTS[spec.norm.name](nn.Linear(4, 4), **spec.arguments)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"in {str(spec)!r}: {error}") from error


def why_not_onto(name: str, operation: Any, spec: Spec, model: nn.Module) -> str:
    """Why an operation cannot take the norm; empty if it can."""
    if "weight" not in operation._parameters:
        return f"the weight of {name} is parametrized or pruned already"
    if is_lazy(operation.weight):
        return f"{name} has no channel count yet; run a batch through the model first"
    if spec.norm.before:
        return _why_not_before(name, operation, spec)
    if getattr(operation, "transposed", False) and spec.norm.name != "sn":
        return f"the rows of a transposed convolution ({name}) are its inputs"
    owners = [
        key for key, module in model.named_modules() if any(p is operation.weight for p in module._parameters.values())
    ]
    if len(owners) > 1:
        return f"the weight of {name} is shared by {', '.join(owners)}"
    return ""


def _why_not_before(name: str, operation: nn.Module, spec: Spec) -> str:
    if hasattr(operation, PRE_NORM):
        return f"{name} already has a {PRE_NORM}"
    if has_own_forward(operation):
        return f"{name} has a forward of its own, which may take other inputs or use them differently"
    if is_linear(operation) and spec.norm.axes == "instance":
        return f"{name} may get inputs (N, C), which have no positions; pop normalizes over the batch"
    return ""


def build_before(operation: nn.Module, spec: Spec) -> nn.Module:
    """A norm of the operation's input channels."""
    assert spec.norm.build is not None
    layer = spec.norm.build(
        input_channels(operation), spatial_dim(operation), **spec.arguments, **factory_of(operation)
    )
    return layer.train(operation.training)


def attach(layer: nn.Module, operation: nn.Module) -> None:
    """Put a norm before an operation."""
    operation.add_module(PRE_NORM, layer)
    operation.register_forward_pre_hook(normalize_input, with_kwargs=True)


def put_onto_weight(operation: Any, spec: Spec) -> None:
    """Parametrize the weight of the operation."""
    parameter = operation.weight
    values, order = parameter.detach().clone(), tuple(operation._parameters)
    _ON_WEIGHTS[spec.norm.name](operation, **spec.arguments)
    operation.__dict__[_FIRST_WEIGHT] = _FirstWeight(parameter, values, _parametrization_state(operation), order)


@torch.no_grad()
def take_off(operation: Any) -> str:
    """Undo either; returns what was there. A weight that was not trained since gets its old values, bit for bit."""
    if is_pre_norm(operation):
        layer = operation._modules.pop(PRE_NORM)
        for key, hook in list(operation._forward_pre_hooks.items()):
            if hook is normalize_input:
                del operation._forward_pre_hooks[key]
                operation._forward_pre_hooks_with_kwargs.pop(key, None)
        return f"{type(layer).__name__} before"
    if not parametrize.is_parametrized(operation, "weight"):
        return ""
    kind = type(operation.parametrizations.weight[0]).__name__.lstrip("_")
    first: _FirstWeight | None = operation.__dict__.pop(_FIRST_WEIGHT, None)
    untouched = first is not None and same_state(_parametrization_state(operation), first.state)
    _give_own_class(operation)
    with torch.enable_grad():  # without it, torch makes the weight a buffer
        parametrize.remove_parametrizations(operation, "weight", leave_parametrized=True)
    if first is not None:
        # Put the same parameter back: optimizers made earlier hold it.
        weight = operation.weight
        first.parameter.data = first.values.to(weight) if untouched else weight.detach().clone()
        first.parameter.requires_grad_(weight.requires_grad)
        operation._parameters["weight"] = first.parameter
        _in_order(operation._parameters, first.order)
    return f"{kind} on the weight of"


def _give_own_class(operation: Any) -> None:
    """Torch makes a class for a parametrized module and later changes it, but copies of the module share the class."""
    kind = type(operation)
    content = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    operation.__class__ = type(kind.__name__, kind.__bases__, content)


def _in_order(registry: dict[str, Any], order: tuple[str, ...]) -> None:
    """Put the entries of a registry into an order, in place; entries that the order does not name come last."""
    for name in (*order, *[name for name in registry if name not in order]):
        if name in registry:
            registry[name] = registry.pop(name)


def _parametrization_state(operation: Any) -> dict[str, Tensor]:
    parametrizations = operation.parametrizations.weight
    parts = [own_state(parametrizations), *[own_state(part) for part in parametrizations]]
    return {f"{i}.{name}": value.clone() for i, part in enumerate(parts) for name, value in part.items()}
