"""``remove_channels``: remove channels from a model for good, with torch-pruning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...introspect.graph import is_operation, trace
from ...introspect.layouts import is_ours
from ...introspect.select import check_model
from ...introspect.shared_channels import TRANSPOSED
from ...surgery.report import Change, Left, Report
from .channels import Drop, channel_norms


def remove_channels(model: nn.Module, drops: Iterable[Drop], example: Tensor) -> Report:
    """Make the layers of a model smaller by these channels. Needs the package torch-pruning.

    Where a channel is merged into another, the weights of the layers that read it are added to those of the other. In
    evaluation the smaller model gives the same outputs as ``prune`` with the channels masked, if the activation after
    the norm maps 0 to 0 (ReLU, tanh, GELU, SiLU; not sigmoid). Norms of this library are left, with the reason in the
    report, and so are norms whose channels are added to others (the last of a residual branch) or read by layers other
    than Linear and Conv.

    Args:
        model: the model; it is changed in place, so create a new optimizer.
        drops: the channels to remove, such as ``prune(...).orders["gamma"][:16]``.
        example: an input, from which torch-pruning finds the dependencies.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import Drop, remove_channels
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        >>> report = remove_channels(model, [Drop("1", 3), Drop("1", 5)], torch.randn(2, 4))  # doctest: +SKIP
        >>> model[2].in_features  # doctest: +SKIP
        6
    """
    check_model(model, "remove channels of", replaces=True)
    try:
        import torch_pruning
    except ImportError as error:
        raise ImportError("expected torch-pruning to remove channels; pip install geonorm[prune]") from error
    by_layer: dict[str, list[Drop]] = {}
    for drop in drops:
        by_layer.setdefault(drop.layer, []).append(drop)
    norms, modules = channel_norms(model), dict(model.named_modules())
    for name in by_layer:
        if name not in norms:
            raise ValueError(f"expected the name of a batch norm with γ and β (got {name!r}); known: {list(norms)}")
    near = trace(model).norms
    report = Report("remove_channels")
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        for name, own in by_layer.items():
            norm, before = norms[name], f"{len(norms[name].weight)} channels"
            operation = near[name].before if name in near else None
            reason = _remove(
                torch_pruning, model, norm, None if operation is None else modules[operation], own, example
            )
            if reason:
                report.left.append(Left(name, type(norm).__name__, reason))
            else:
                report.changed.append(Change(name, before, f"{len(norm.weight)} channels"))
    finally:
        for module, training in modes:
            module.training = training
    return report


def _remove(
    tools: Any,
    model: nn.Module,
    norm: nn.Module,
    operation: nn.Module | None,
    drops: Sequence[Drop],
    example: Tensor,
) -> str:
    """Remove channels of one norm; return the reason if that is impossible, else an empty string."""
    if is_ours(norm):
        return "torch-pruning supports only torch's norms; call geonorm.revert(model) first"
    if operation is None or not is_operation(operation) or getattr(operation, "groups", 1) != 1:
        return "it is not right after a Linear or Conv without groups"
    with torch.enable_grad():  # it reads the autograd graph
        graph = tools.DependencyGraph().build_dependency(model, example_inputs=example)
    cut = tools.prune_linear_out_channels if isinstance(operation, nn.Linear) else tools.prune_conv_out_channels

    def group_of(channels: list[int]) -> Any:
        return graph.get_pruning_group(operation, cut, idxs=channels)

    group = group_of([drop.channel for drop in drops])
    if not graph.check_pruning_group(group):
        return "a layer would have no channels left"
    for dependency, _ in group:
        module = dependency.target.module
        is_output = graph.is_out_channel_pruning_fn(dependency.handler)
        if module is operation or module is norm or not list(module.parameters(recurse=False)):
            continue
        if is_output or not is_operation(module) or getattr(module, "groups", 1) != 1:
            return f"its channels are tied to {dependency.target.name.split(' ')[0]}, which does more than read them"
    if any("Add" in dependency.target.name for dependency, _ in group):
        return "its channels are added to others"
    with torch.no_grad():
        for drop in drops:
            if drop.into is not None:
                _merge(group_of([drop.channel]), group_of([drop.into]), operation, norm)
    group.prune()
    return ""


def _merge(dropped: Any, kept: Any, operation: nn.Module, norm: nn.Module) -> None:
    """Add the weights that read one channel to those that read the other."""
    for (dependency, own), (_, other) in zip(dropped, kept, strict=True):
        module = dependency.target.module
        if module is not operation and module is not norm and is_operation(module):
            dim, weight = 0 if isinstance(module, TRANSPOSED) else 1, module.weight
            there, here = (torch.tensor(indices, device=weight.device) for indices in (other, own))
            weight.index_add_(dim, there, weight.index_select(dim, here))
