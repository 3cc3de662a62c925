"""Faults that can be seen in a model as it stands, without data: parameters, buffers, settings and order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..surgery.freeze import is_frozen
from ..surgery.layouts import keeps_statistics
from ..surgery.pairs import Graph
from .axes import axes_of, channel_affine
from .finding import Finding, part, some
from .known_invariances import known_units
from .observe import norms_of
from .pairing import TRANSPOSED, could_share_channels, is_held

# Rows of fresh weights have a length near 1. At 100 the effective learning rate is 10,000 times smaller.
HUGE, TINY = 100.0, 1e-3
# Rows that point the same way but for rounding.
_PARALLEL = 1e-6


def standing_faults(model: nn.Module, graph: Graph) -> Iterator[Finding]:
    """All of them, in the order of the model."""
    modules = dict(model.named_modules())
    yield from _bad_values(model)
    for name, norm in norms_of(model).items():
        yield from _settings(name, norm, model.training)
    for name, near in graph.norms.items():
        if near.before is None or axes_of(modules[name]) not in ("batch", "instance"):
            continue  # others keep the size of a row, and its bias
        if could_share_channels(modules[near.before], modules[name]) and not is_held(modules[name], model):
            yield from _redundant_bias(near.before, modules[near.before], name, modules[name])
            yield from _duplicates(near.before, modules[near.before], name)
    yield from _sizes(model, graph)


def _bad_values(model: nn.Module) -> Iterator[Finding]:
    for what, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            layer, _, own = name.rpartition(".")
            bad = int((~tensor.isfinite()).sum()) if tensor.is_floating_point() else 0
            if bad:
                yield Finding(
                    "error",
                    f"{what} not finite",
                    layer or "(model)",
                    f"the {what} {own} has NaN or Inf, and so have the outputs"
                    + (" in evaluation" if own.startswith("running") else ""),
                    f"{bad} of {tensor.numel()} values",
                    "load a checkpoint from before it happened; if a batch caused it, leave that batch out and "
                    + ("geonorm.recalibrate(model, batches)" if what == "buffer" else "lower the learning rate"),
                )
            elif own == "running_var" and bool((tensor < 0).any()):
                yield Finding(
                    "error",
                    "negative variance",
                    layer or "(model)",
                    "the running variance is negative: evaluation takes the root of it",
                    f"lowest value {float(tensor.min()):.3g}",
                    "geonorm.recalibrate(model, batches)",
                )


def _settings(name: str, norm: Any, training: bool) -> Iterator[Finding]:
    name = name or "(model)"
    kept = keeps_statistics(norm)
    momentum = getattr(norm, "momentum", None)
    if kept and momentum is not None and not 0 < momentum < 1:
        said = {0: "never follow the data", 1: "are those of the last batch alone"}.get(momentum, "run away")
        yield Finding(
            "warning" if momentum in (0, 1) else "error",
            "momentum",
            name,
            f"momentum is {momentum:g}: the running statistics {said}",
            f"momentum={momentum:g}",
            "use 0.1, or None for the average over all batches; in torch momentum is the weight of the new batch",
        )
    on_purpose = is_frozen(norm)
    if kept and training and (on_purpose or not norm.training):
        yield Finding(
            "note" if on_purpose else "warning",
            "not training",
            name,
            "the model is in training mode and this norm is not: it uses its running statistics and does not follow",
            "frozen by geonorm.freeze" if on_purpose else "norm.training is False, model.training is True",
            "nothing if that is wanted"
            if on_purpose
            else "model.train(); if it is wanted, geonorm.freeze(model) says so",
        )
    if kept and not training and never_measured(norm):
        yield Finding(
            "warning",
            "never measured",
            name,
            "the model is in evaluation and the running statistics were never measured",
            "num_batches_tracked is 0, running_mean is 0 and running_var is 1",
            "train first, load a state_dict with buffers, or geonorm.recalibrate(model, batches)",
        )
    if axes_of(norm) == "layer" and torch.Size(norm.normalized_shape).numel() == 1:
        yield single_value(name, "each sample has one value to normalize: the output is constant")
    if axes_of(norm) == "batch" and (affine := channel_affine(norm)) is not None:
        gamma = affine[0].abs()
        if bool((gamma == 0).all()) and len(gamma) and getattr(norm, "weight", None) is not None:
            yield Finding(
                "note",
                "gamma zero",
                name,
                "all γ are 0: what comes in here has no effect yet",
                f"{len(gamma)} channels",
                "nothing, if it is the start of a residual branch; otherwise set γ to 1",
            )


def never_measured(norm: Any) -> bool:
    """Whether running statistics are where they start."""
    counted = getattr(norm, "num_batches_tracked", None)
    if counted is not None and int(counted):
        return False
    return bool((norm.running_mean == 0).all()) and bool((norm.running_var == 1).all())


def single_value(name: str, what: str) -> Finding:
    """The finding for a group of one value."""
    return Finding(
        "error",
        "single value",
        name,
        what,
        "1 value per group",
        "normalize over more values (other groups, larger images or batches), or take the norm out here",
    )


def _redundant_bias(name: str, operation: Any, norm_name: str, norm: nn.Module) -> Iterator[Finding]:
    if operation.bias is None:
        return
    # A center removed in part, or put back by a shift, leaves a part of the bias.
    learned = getattr(norm, "alpha", None) is not None
    if learned or getattr(norm, "alpha_start", 1.0) != 1:
        return
    yield Finding(
        "note",
        "redundant bias",
        name,
        f"its bias is removed by {norm_name}, which subtracts the center: it gets no gradient and costs memory",
        f"{operation.bias.numel()} values, followed by {type(norm).__name__}",
        "bias=False; the norm has its own",
    )


def _duplicates(name: str, operation: Any, norm_name: str) -> Iterator[Finding]:
    if isinstance(operation, TRANSPOSED):
        return
    weight: Tensor = operation.weight.detach().flatten(1).double()
    if weight.shape[1] < 4 or not bool(weight.isfinite().all()):  # a row of few weights may well be parallel to others
        return
    groups = getattr(operation, "groups", 1)
    pairs: list[tuple[int, int]] = []
    for group, rows in enumerate(weight.chunk(groups)):
        size = rows.norm(dim=1, keepdim=True)
        unit = rows / size.clamp_min(1e-300)
        near = ((unit @ unit.T) > 1 - _PARALLEL).triu(1) & (size > 0)
        first = group * len(rows)
        pairs += [(first + i, first + j) for i, j in near.nonzero().tolist()]
    if pairs:
        second = sorted({j for _, j in pairs})
        yield Finding(
            "warning",
            "duplicate channels",
            name,
            f"rows of its weight point the same way, and {norm_name} removes their size: these channels carry the "
            "same thing",
            f"{part(len(second), len(weight))} repeat another one, such as {pairs[0][1]} and {pairs[0][0]}",
            "start them differently (a copied or constant start keeps them equal), or remove them",
            second,
        )


def _sizes(model: nn.Module, graph: Graph) -> Iterator[Finding]:
    parameters, modules = dict(model.named_parameters()), dict(model.named_modules())
    # A model in evaluation is asked about its next training.
    for name, known in known_units(model, graph, as_trained=not model.training).items():
        weight = parameters[name].detach()
        if not bool(weight.isfinite().all()):
            continue
        sizes = weight.movedim(known.dim, 0).flatten(1).double().norm(dim=1)
        size = float(sizes.square().mean().sqrt())
        layer = name.rsplit(".parametrizations", 1)[0].removesuffix(".weight")
        again = any(keeps_statistics(modules[n]) for n, near in graph.norms.items() if near.before == layer)
        along = "" if known.bias is None else ", and the bias with them"
        rescale = (
            f"weights{along}: geonorm.optim.project_scale_invariant(model.train(), radius=1) does it. No output in "
            f"training changes but for eps{'; geonorm.recalibrate(model, batches) for evaluation' if again else ''}"
        )
        if size > HUGE:
            yield Finding(
                "warning",
                "huge weights",
                layer,
                "its weights are scale invariant and huge: the effective learning rate η/‖w‖² has all but vanished",
                f"‖w‖ of a row is {size:.3g} (rms; fresh weights have about 1), invariant per {known.kind}",
                f"divide the {rescale}; use weight decay or geonorm.optim.SphereSGD from there on",
            )
        elif size < TINY and bool((sizes > 0).any()):
            yield Finding(
                "warning",
                "tiny weights",
                layer,
                "its weights are scale invariant and tiny: gradients grow as 1/‖w‖, and eps takes over",
                f"‖w‖ of a row is {size:.3g} (rms; fresh weights have about 1), invariant per {known.kind}",
                f"multiply the {rescale}; lower the weight decay",
            )
        elif (small := (sizes < TINY * sizes.median()).nonzero().flatten().tolist()) and known.kind == "row":
            yield Finding(
                "warning",
                "tiny weights",
                layer,
                "some rows of its weight are far smaller than the others; a norm hides it until eps takes over",
                f"{part(len(small), len(sizes))}: {some(small)} below 1/1000 of the median row",
                "start these rows anew, or remove the channels",
                small,
            )
