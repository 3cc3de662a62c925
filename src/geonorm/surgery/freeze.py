"""``freeze`` and ``unfreeze``: norms that stay in evaluation while the model trains."""

from __future__ import annotations

import sys

import torch
from torch import nn

from ..introspect.layouts import is_frozen, is_norm, keeps_statistics, stay_in_evaluation
from ..introspect.select import Where, check_model, chosen
from .report import Change, Left, Report

_TRAINED = "_geonorm_trained"  # names of the parameters whose training freeze stopped


def freeze(model: nn.Module, where: Where = None, *, affine: bool = False) -> Report:
    """Make norms use their running statistics and stop updating them, even after ``model.train()``.

        y = γ·(x − running_mean)/√(running_var + eps) + β        in training too

    For fine-tuning with small batches. Works on torch's layers and on those of this library. Compiled models are
    compiled again: ``torch.compiler.reset()`` is called, which drops every compiled graph of the process. ``unfreeze``
    undoes it.

    Args:
        model: any model.
        where: which norms: a name pattern, several, or a function of (name, module). All by default.
        affine: also stop training the norms' own parameters (γ, β, φ, α).

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        >>> print(geonorm.freeze(model))
        freeze: 1 module changed, 0 left
        <BLANKLINE>
        module  before       after
        ------  -----------  ------
        1       BatchNorm2d  frozen
        >>> y = model.train()(torch.randn(2, 3, 8, 8))
        >>> model[1].num_batches_tracked
        tensor(0)
    """
    check_model(model, "freeze")
    is_chosen, report = chosen(model, where), Report("freeze")
    for name, module in model.named_modules():
        if not is_norm(module) or not is_chosen(name, module):
            continue
        done = []
        if keeps_statistics(module) and not is_frozen(module):
            module.register_forward_pre_hook(stay_in_evaluation)
            module.training = False
            done.append("frozen")
        if affine and _stop(module):
            done.append("parameters fixed")
        if done:
            report.changed.append(Change(name or "(model)", type(module).__name__, ", ".join(done)))
        elif not keeps_statistics(module) and not affine:
            reason = "has no running statistics: it measures every input"
            report.left.append(Left(name or "(model)", type(module).__name__, reason))
    if report.changed:
        _reset_compiled_graphs()
    return report


def unfreeze(model: nn.Module, where: Where = None) -> Report:
    """Make frozen norms train again; the inverse of ``freeze``.

    They return to the mode of the model, and parameters that ``freeze(affine=True)`` stopped are trained again.

    Args:
        model: a model with frozen norms.
        where: which ones, as in ``freeze``.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        >>> report = geonorm.freeze(model, affine=True)
        >>> print(geonorm.unfreeze(model))
        unfreeze: 1 module changed, 0 left
        <BLANKLINE>
        module  before  after
        ------  ------  -----------
        1       frozen  BatchNorm2d
        >>> model[1].weight.requires_grad, model[1].training
        (True, True)
    """
    check_model(model, "unfreeze")
    is_chosen, report = chosen(model, where), Report("unfreeze")
    for name, module in model.named_modules():
        stopped = module.__dict__.get(_TRAINED)
        if not (stopped or is_frozen(module)) or not is_chosen(name, module):
            continue
        for key, hook in list(module._forward_pre_hooks.items()):
            if hook is stay_in_evaluation:
                del module._forward_pre_hooks[key]
        module.training = model.training
        for key in module.__dict__.pop(_TRAINED, []):
            parameter = module._parameters.get(key)
            if parameter is not None:
                parameter.requires_grad_(True)
        report.changed.append(Change(name or "(model)", "frozen", type(module).__name__))
    if report.changed:
        _reset_compiled_graphs()
    return report


def carry_freeze(old: nn.Module, new: nn.Module) -> None:
    """Freeze a replacement if the old layer was frozen."""
    if is_frozen(old) and not is_frozen(new):
        new.register_forward_pre_hook(stay_in_evaluation)
    if _TRAINED in old.__dict__:
        shared = [name for name in old.__dict__[_TRAINED] if new._parameters.get(name) is old._parameters.get(name)]
        new.__dict__[_TRAINED] = shared
        _stop(new)


def _stop(module: nn.Module) -> list[str]:
    """Stop the training of a module's own parameters; returns the names of those that were trained."""
    names = [name for name, parameter in module.named_parameters(recurse=False) if parameter.requires_grad]
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    if names:
        module.__dict__[_TRAINED] = [*module.__dict__.get(_TRAINED, []), *names]
    return names


def _reset_compiled_graphs() -> None:
    """Drop every compiled graph of this process: compiled graphs do not notice added or removed hooks."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
