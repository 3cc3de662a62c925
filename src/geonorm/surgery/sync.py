"""``sync`` and ``unsync``: statistics over all processes of a group while the model trains."""

from __future__ import annotations

from torch import nn

from ..distributed import WORLD, Group, group_name
from ..introspect.layouts import description_of, is_norm, is_ours, layout_of, why_parametrized, why_unknown
from ..introspect.select import Where, check_model, chosen
from .conversion_record import synced
from .convert import convert
from .report import Change, Left, Report

_TORCH_WITHIN_A_SAMPLE = (nn.RMSNorm, nn.LocalResponseNorm)


def sync(model: nn.Module, process_group: Group | None = None, where: Where = None) -> Report:
    """Compute the statistics of norms over the batch over all processes of a group, in place.

        c, s of the batches of all processes together        in training; evaluation needs no communication

    Works on any backend, gloo on CPU included. AugNorm and POP-Norm over the batch get the group; torch's BatchNorm
    becomes a layer of this library with φ=2, which does the same on any device. Batches may differ in size and may be
    empty: every value counts once. Only a few numbers per channel are exchanged. Norms within a sample are left. A norm
    that this library does not know raises an error, and the model is unchanged.

    All processes must run the same layers in the same order, forward and backward. Gradients of parameters are those
    of each process's own values, as DistributedDataParallel expects. Wrap the model after the call.

    Args:
        model: any model.
        process_group: a ``torch.distributed`` group or its name; by default torch's default group, which may
            be initialized later.
        where: which norms: a name pattern, several, or a function of (name, module). All by default.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.LayerNorm(8))
        >>> print(geonorm.sync(model))
        sync over world: 1 module changed, 1 left
        <BLANKLINE>
        module  before       after
        ------  -----------  -------------------------------------
        1       BatchNorm1d  AugBatchNorm1d with phi=2, over world
        <BLANKLINE>
        left  kind       reason
        ----  ---------  --------------------------------
        2     LayerNorm  its groups lie within one sample
    """
    check_model(model, "sync", replaces=True)
    name = group_name(process_group) or WORLD
    is_chosen, report = chosen(model, where), Report(f"sync over {name}")
    norms = [(key, module) for key, module in model.named_modules() if is_norm(module) and is_chosen(key, module)]
    _check_known(norms)
    of_torch = {id(module) for _, module in norms if not is_ours(module) and _axes(module) == "batch"}
    if of_torch:
        convert(model, "aug(phi=2)", where=lambda key, module: id(module) in of_torch)
    after = dict(model.named_modules())
    for key, module in norms:
        now, kind = after[key], type(module).__name__
        if now is not module:
            done = f"{type(now).__name__} with phi=2, over {name}"
        elif is_ours(now) and now.axes == "batch":
            done = f"over {name}"
        else:
            report.left.append(Left(key or "(model)", kind, "its groups lie within one sample"))
            continue
        now.process_group = name
        report.changed.append(Change(key or "(model)", kind, done))
    return report


def unsync(model: nn.Module, where: Where = None) -> Report:
    """Compute statistics in each process alone again; the inverse of ``sync``.

    Layers that were torch's BatchNorm stay as layers of this library with φ=2; ``geonorm.revert`` puts torch's back.

    Args:
        model: a model with layers that have a process group.
        where: which ones, as in ``sync``.

    Examples:
        >>> import geonorm
        >>> model = geonorm.AugBatchNorm1d(8, process_group="world")
        >>> print(geonorm.unsync(model))
        unsync: 1 module changed, 0 left
        <BLANKLINE>
        module   before      after
        -------  ----------  ---------------
        (model)  over world  in each process
    """
    check_model(model, "unsync")
    is_chosen, report = chosen(model, where), Report("unsync")
    for key, module in synced(model).items():
        if is_chosen(key, module):
            report.changed.append(Change(key or "(model)", f"over {module.process_group}", "in each process"))
            module.process_group = None  # type: ignore[assignment]
    return report


def _axes(module: nn.Module) -> str | None:
    layout = layout_of(module)
    return None if layout is None else layout.axes


def _why_not(module: nn.Module) -> str:
    """Why it is not known what a norm does; empty if it is known."""
    described = description_of(module) if is_ours(module) else None
    known = described.known if described else next((k for k in _TORCH_WITHIN_A_SAMPLE if isinstance(module, k)), None)
    if known is not None:
        own = type(module).forward is not known.forward or "forward" in module.__dict__
        return "it has a forward of its own" if own else ""
    if _axes(module) is None:
        return why_unknown(module)
    return why_parametrized(module) if _axes(module) == "batch" else ""


def _check_known(norms: list[tuple[str, nn.Module]]) -> None:
    """Raise unless every norm is known here, or certainly normalizes within each sample."""
    for name, module in norms:
        reason = _why_not(module)
        if reason:
            raise ValueError(
                f"expected norms that are known here (got {type(module).__name__} at {name or 'the model itself'}: "
                f"{reason}); nothing was changed; leave it out with where=, or replace it first"
            )
        if not name and not is_ours(module) and _axes(module) == "batch":
            raise ValueError(
                f"expected a model that contains its norms (got {type(module).__name__} itself, which cannot be "
                "replaced in place); put it into nn.Sequential"
            )
