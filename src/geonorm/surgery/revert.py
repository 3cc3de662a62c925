"""``revert``: torch's own layers back in their places."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import nn as ours
from .holders import Holders
from .layouts import is_ours, layout_of
from .memory import is_untouched, memory_of, move_hooks_back
from .placement import PRE_NORM, take_off
from .report import Change, Left, Report
from .select import Places, Where, check_model, chosen


class Restored(NamedTuple):
    """A torch layer from one of ours, and what of ours it cannot say."""

    module: nn.Module
    lost: list[str]


def revert(model: nn.Module, where: Where = None) -> Report:
    """Put torch's own layers back, in place.

        running_mean = α·running_center        running_var = the squared spread that evaluation divides by

    Right after ``convert`` the model is what it was, bit for bit. After training, weights, biases and statistics are
    mapped: the evaluation of a layer with running statistics stays the same function. What torch's layer cannot say
    (φ, α, κ, another spread, the place before an operation) is listed.

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
    holders = Holders(model)
    for name, module in places:
        memory = memory_of(module)
        if not (memory or is_ours(module)) or not is_chosen(name, module):
            continue
        if name.rpartition(".")[2] == PRE_NORM:
            continue  # it goes with the norm that it came for
        back = restored(module)
        if back is None or not name:
            reason = "torch has no such layer" if name else "the model itself cannot be replaced in place"
            report.left.append(Left(name or "(model)", type(module).__name__, reason))
            continue
        move_hooks_back(module, back.module)
        places.replace(module, back.module)
        lost = list(back.lost)
        if memory:
            for other, attribute, value in memory.attributes:
                setattr(other, attribute, value)
            for operation in memory.operations:
                taken = take_off(model.get_submodule(operation))
                lost += [f"{taken} {operation}"] if taken else []
        note = f"no twin: {', '.join(lost)}" if lost else ""
        report.changed.append(Change(name, type(module).__name__, type(back.module).__name__, note))
    report.notes += holders.notes(model)
    return report


@torch.no_grad()
def restored(module: Any) -> Restored | None:
    """The torch layer that one of ours, or what stands in the place of a norm, goes back to; None if there is none."""
    memory = memory_of(module)
    twin: Any = memory.original if memory else _torch_twin(module)
    if twin is None:
        return None
    twin.training = module.training
    if not is_ours(module):
        return Restored(twin, [])
    for name in ("weight", "bias"):
        if twin._parameters.get(name) is not None and module._parameters.get(name) is not None:
            twin._parameters[name] = module._parameters[name]
    if memory is None or not is_untouched(module, memory):
        _map_statistics(module, twin)
    for name, buffer in twin._buffers.items():
        if buffer is not None and isinstance(mine := module._buffers.get(name), Tensor):
            twin._buffers[name] = buffer.to(mine.device, mine.dtype)
    return Restored(twin, _without_twin(module))


def _map_statistics(module: Any, twin: Any) -> None:
    """center → mean and squared spread → variance: the same evaluation."""
    if getattr(twin, "mean_scale", None) is not None and isinstance(module, ours.AugGraphNorm):
        if module.mean_scale is not None:
            twin.mean_scale = module.mean_scale
        return
    if getattr(module, "running_mean", None) is None or getattr(twin, "running_mean", None) is None:
        return
    center, variance, _, _ = module._evaluation()
    for name, value in (
        ("running_mean", center),
        ("running_var", variance),
        ("num_batches_tracked", module.num_batches_tracked),
    ):
        twin._buffers[name] = value.detach().clone()


def _torch_twin(module: nn.Module) -> nn.Module | None:
    """A torch layer with the arguments of one of ours that was built, not converted."""
    layout = layout_of(module)
    if layout is None or layout.axes == "graph" or not is_ours(module):
        return None
    tensor = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)
    factory = {} if tensor is None else {"device": tensor.device, "dtype": tensor.dtype}
    arguments = {**layout.arguments, **factory}
    if layout.axes == "layer":
        return nn.LayerNorm(layout.channels, **arguments)
    if layout.axes == "group":
        return nn.GroupNorm(arguments.pop("groups"), layout.channels, **arguments)
    kind = getattr(nn, f"{'Batch' if layout.axes == 'batch' else 'Instance'}Norm{layout.dim}d")
    if "bias" in arguments and "bias" not in inspect.signature(kind).parameters:
        arguments.pop("bias")
    layer: nn.Module = kind(layout.channels, **arguments)
    return layer


def _without_twin(module: Any) -> list[str]:
    """What of one of our layers torch's cannot say."""
    lost = []
    if module.learn_phi:
        lost.append("learned φ")
    elif module.phi_start != 2:
        lost.append(f"φ={module.phi_start:g}")
    if module.learn_alpha:
        lost.append("learned α")
    elif module.alpha_start != 1:
        lost.append(f"α={module.alpha_start:g}")
    if module.spread not in ("rms", 2, 2.0):
        lost.append(f"spread={module.spread!r}")
    return lost
