"""``revert``: torch's own layers back in their places."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import Parameter

from .. import nn as ours
from ..introspect.layouts import build_layer, factory_of, is_ours, layout_of
from ..introspect.select import Places, Where, check_model, chosen
from .conversion_record import drop_record, move_hooks_back, own_state, record_of, same_state
from .fast_paths import update_fast_paths
from .freeze import carry_freeze
from .placement import PRE_NORM, is_pre_norm, take_off
from .report import Change, Left, Report
from .stale_optimizers import StaleOptimizers
from .user_attributes import carry_user_attributes


class Restored(NamedTuple):
    """A torch layer made from one of ours, and the options of ours that torch's layer does not have."""

    module: nn.Module
    lost: list[str]


def revert(model: nn.Module, where: Where = None) -> Report:
    """Put torch's own layers back, in place.

        running_mean = α·running_center        running_var = the squared spread that evaluation divides by

    Right after ``convert`` the model is what it was, bit for bit. After training, weights, biases and statistics are
    mapped, so that a layer with running statistics computes the same function in evaluation. Options that torch's layer
    does not have (φ, α, κ, another spread, a guard, the place before an operation) are listed.

    Args:
        model: a model with layers of this library, converted or built so.
        where: which ones, as in ``convert``: names of the norms' places.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        >>> before = {key: value.clone() for key, value in model.state_dict().items()}
        >>> report = geonorm.convert(model, "robustbn")
        >>> print(geonorm.revert(model))
        revert: 1 module changed, 0 left
        <BLANKLINE>
        module  before          after        note
        ------  --------------  -----------  -------------------------------
        1       AugBatchNorm2d  BatchNorm2d  no twin: φ=1.5, spread='robust'
        >>> all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        True
    """
    check_model(model, "revert", replaces=True)
    is_chosen, places, report = chosen(model, where), Places(model), Report("revert")
    stale_optimizers = StaleOptimizers(model)
    names = {id(module): name for name, module in model.named_modules()}
    moved = {id(module.pre_norm) for module in model.modules() if is_pre_norm(module)}
    for name, module in places:
        record = record_of(module)
        if id(module) in moved or not (record or is_ours(module)) or not is_chosen(name, module):
            continue
        back = restored(module)
        if back is None or not name:
            reason = "torch has no such layer" if name else "the model itself cannot be replaced in place"
            report.left.append(Left(name or "(model)", type(module).__name__, reason))
            continue
        if record is None or record.has_hooks:
            move_hooks_back(module, back.module)
        carry_freeze(module, back.module)
        drop_record(back.module)
        places.replace(module, back.module)
        lost = list(back.lost) + carry_user_attributes(module, back.module)
        for operation in record.operations if record else []:
            if is_pre_norm(operation):
                carry_freeze(operation.get_submodule(PRE_NORM), back.module)
            taken = take_off(operation)
            lost += [f"{taken} {names.get(id(operation), 'an operation outside')}"] if taken else []
        note = f"no twin: {', '.join(lost)}" if lost else ""
        report.changed.append(Change(name, type(module).__name__, type(back.module).__name__, note))
    update_fast_paths(model)
    report.notes += stale_optimizers.notes(model)
    return report


@torch.no_grad()
def restored(module: Any) -> Restored | None:
    """The torch layer that replaces one of ours, or the placeholder of a removed norm; None if there is none."""
    record = record_of(module)
    twin: Any = record.original if record else _torch_twin(module)
    if twin is None:
        return None
    twin.training = module.training
    own, other = layout_of(module), layout_of(twin)
    same_axes = own is not None and other is not None and own.axes == other.axes
    if own is not None and not (record and same_state(own_state(module), record.state)):
        _map_parameters(module, twin)
        if same_axes:
            _map_statistics(module, twin)
            twin.eps = module.eps
    _move(twin, factory_of(module))
    return Restored(twin, _without_twin(module) if is_ours(module) else [])


def _map_parameters(module: Any, twin: Any) -> None:
    """Move γ and β, the same objects, even where the twin has none; ones and zeros where ours has none."""
    for name, start in (("weight", 1.0), ("bias", 0.0)):
        mine, theirs = module._parameters.get(name), twin._parameters.get(name)
        if mine is not None and (theirs is None or theirs.shape == mine.shape):
            twin._parameters[name] = mine
            for flag in ("affine", "elementwise_affine"):
                if hasattr(twin, flag):
                    setattr(twin, flag, True)
        elif mine is None and theirs is not None:
            twin._parameters[name] = Parameter(torch.full_like(theirs, start), requires_grad=theirs.requires_grad)


def _map_statistics(module: Any, twin: Any) -> None:
    """Center → mean and squared spread → variance, for the same outputs in evaluation."""
    if isinstance(module, ours.AugGraphNorm):
        if module.mean_scale is not None:
            twin.mean_scale = module.mean_scale
        return
    if getattr(module, "running_mean", None) is None or getattr(twin, "running_mean", None) is None:
        return
    center, variance = module._evaluation()[:2] if is_ours(module) else (module.running_mean, module.running_var)
    for name, value in (
        ("running_mean", center),
        ("running_var", variance),
        ("num_batches_tracked", module.num_batches_tracked),
    ):
        twin._buffers[name] = value.detach().clone()


def _move(twin: nn.Module, factory: dict[str, Any]) -> None:
    """Move the twin to the device and dtype of the layer that it replaces."""
    if factory["dtype"] is None:
        return
    for name, buffer in twin._buffers.items():
        if buffer is not None:
            dtype = factory["dtype"] if buffer.is_floating_point() else buffer.dtype
            twin._buffers[name] = buffer.to(factory["device"], dtype)
    for parameter in twin._parameters.values():
        if parameter is not None and (parameter.dtype, parameter.device) != (factory["dtype"], factory["device"]):
            parameter.data = parameter.data.to(**factory)


def _torch_twin(module: nn.Module) -> nn.Module | None:
    """A torch layer with the arguments of one of ours that was built, not converted."""
    layout, twin = layout_of(module), getattr(module, "twin", None)
    if layout is None or not is_ours(module) or not isinstance(twin, type):
        return None
    arguments = {**layout.arguments, **factory_of(module)}
    if "bias" not in inspect.signature(twin).parameters:  # an old torch, in which β cannot be left out
        arguments.pop("bias", None)
    return build_layer(twin, layout.channels, arguments)


def _without_twin(module: Any) -> list[str]:
    """The options of one of our layers that torch's layer does not have."""
    lost = []
    if module.learn_phi:
        lost.append("learned φ")
    elif module.phi_start != 2:
        lost.append(f"φ={module.phi_start:g}")
    if not isinstance(module, ours.AugGraphNorm):
        if module.learn_alpha:
            lost.append("learned α")
        elif module.alpha_start != 1:
            lost.append(f"α={module.alpha_start:g}")
    if module.spread not in ("rms", 2):
        lost.append(f"spread={module.spread!r}")
    if getattr(module, "guard", None) is not None:
        lost.append(f"guard={module.guard:g}")
    if getattr(module, "process_group", None) is not None:
        lost.append(f"process_group={module.process_group!r}")
    return lost
