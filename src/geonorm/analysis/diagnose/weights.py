"""The weights before norms: biases without effect, repeated rows, sizes that a norm hides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from ...introspect.axes import axes_of
from ...introspect.known_invariances import known_units
from ...introspect.layouts import keeps_statistics
from ...introspect.shared_channels import TRANSPOSED, could_share_channels, stays_in_evaluation
from .finding import Finding, channel_fraction, channel_list
from .observations import Observations

# Rows of newly initialized weights have a length near 1. At 100 the effective learning rate is 10,000 times smaller.
HUGE, TINY = 100.0, 1e-3
# A step of SGD rotates a row by about η‖g‖/‖w‖², ‖g‖ being that of a row of length 1: below this, it takes a million
# steps.
NO_RATE = 1e-6
# Rows that are parallel up to rounding.
_PARALLEL = 1e-6


def _pairs(observed: Observations) -> Iterator[tuple[str, Any, str, nn.Module]]:
    """Operations with the norm after each, where that norm removes the size of a row."""
    for name, near in observed.readings.graph.norms.items():
        norm = observed.modules[name]
        if near.before is None or axes_of(norm) not in ("batch", "instance"):
            continue  # others keep the size of a row, and its bias
        operation = observed.modules[near.before]
        if could_share_channels(operation, norm) and not stays_in_evaluation(norm, observed.model):
            yield near.before, operation, name, norm


def redundant_bias(observed: Observations) -> Iterator[Finding]:
    """Biases that the next norm subtracts."""
    found, values = [], 0
    for name, operation, _, norm in _pairs(observed):
        # A center removed only in part, or added back by a shift, leaves a part of the bias.
        learned = getattr(norm, "alpha", None) is not None
        if operation.bias is None or learned or getattr(norm, "alpha_start", 1.0) != 1:
            continue
        found.append((name, operation.bias.numel(), type(norm).__name__))
        values += operation.bias.numel()
    if found:
        layers = [name for name, _, _ in found]
        yield Finding(
            "note",
            "redundant bias",
            layers[0],
            "its bias has no effect, because the norm after it subtracts the mean; it only costs memory"
            if len(found) == 1
            else f"the biases of {len(found)} layers have no effect, because the norms after them subtract the mean",
            f"{values} values, followed by {found[0][2]}",
            "bias=False; the norm has a bias of its own",
            cure="remove bias",
            layers=layers,
        )


def duplicates(observed: Observations) -> Iterator[Finding]:
    """Rows of a weight that are parallel."""
    for name, operation, norm_name, _ in _pairs(observed):
        if isinstance(operation, TRANSPOSED):
            continue
        weight: Tensor = operation.weight.detach().flatten(1).double()
        if weight.shape[1] < 4 or not bool(weight.isfinite().all()):  # a row of few weights may well be parallel
            continue
        pairs: list[tuple[int, int]] = []
        for group, rows in enumerate(weight.chunk(getattr(operation, "groups", 1))):
            size = rows.norm(dim=1, keepdim=True)
            unit = rows / size.clamp_min(1e-300)
            near = ((unit @ unit.T) > 1 - _PARALLEL).triu(1) & (size > 0)
            first = group * len(rows)
            pairs += [(first + i, first + j) for i, j in near.nonzero().tolist()]
        if not pairs:
            continue
        second = sorted({j for _, j in pairs})
        yield Finding(
            "warning",
            "duplicate channels",
            name,
            f"rows of its weight are parallel, and {norm_name} removes their size: these channels carry the same "
            "information",
            f"{channel_fraction(len(second), len(weight))} repeat another one, such as {pairs[0][1]} and {pairs[0][0]}",
            "initialize them differently (copied or constant initial values keep them equal), or remove them",
            second,
            harm=len(second) / len(weight),
        )


def sizes(observed: Observations) -> Iterator[Finding]:
    """Weights whose size a norm hides, until the learning rate or eps exposes it."""
    model, graph = observed.model, observed.readings.graph
    parameters = dict(model.named_parameters())
    found: dict[str, list[tuple[str, float, bool]]] = {}
    # A model in evaluation is judged as if it were in training.
    for name, known in known_units(model, graph, as_trained=not model.training).items():
        weight = parameters[name].detach()
        if not bool(weight.isfinite().all()):
            continue
        lengths = weight.movedim(known.dim, 0).flatten(1).double().norm(dim=1)
        size = float(lengths.square().mean().sqrt())
        layer = name.rsplit(".parametrizations", 1)[0].removesuffix(".weight")
        slow = observed.lr is not None and size > 0 and observed.lr / size**2 < NO_RATE
        if size > HUGE or slow:
            found.setdefault("huge weights", []).append((layer, size, known.bias is not None))
        elif size < TINY and bool((lengths > 0).any()):
            found.setdefault("tiny weights", []).append((layer, size, known.bias is not None))
        elif (small := (lengths < TINY * lengths.max()).nonzero().flatten().tolist()) and known.kind == "row":
            yield Finding(
                "warning",
                "tiny weights",
                layer,
                "some rows of its weight are far smaller than the others; the norm hides it until eps takes over",
                f"{channel_fraction(len(small), len(lengths))}: {channel_list(small)} below 1/1000 of the largest row",
                "reinitialize these rows, or remove the channels",
                small,
                harm=len(small) / len(lengths),
            )
    for kind, entries in found.items():
        yield _wrong_size(observed, kind, entries)


def _wrong_size(observed: Observations, kind: str, entries: list[tuple[str, float, bool]]) -> Finding:
    layers = [layer for layer, _, _ in entries]
    with_bias = " and their biases" if any(biased for _, _, biased in entries) else ""
    worst = (max if kind == "huge weights" else min)(entries, key=lambda entry: entry[1])
    has_statistics = any(keeps_statistics(norm) for norm in observed.modules.values())
    rate = "" if observed.lr is None else f"; at lr={observed.lr:g}, lr/‖w‖² is {observed.lr / worst[1] ** 2:.2g}"
    then = "; then geonorm.recalibrate(model, batches) for evaluation" if has_statistics else ""
    if kind == "huge weights":
        what = (
            "its weights have grown so much that training hardly rotates them: the effective rate lr/‖w‖² is almost 0"
        )
        after = "then use weight decay or geonorm.optim.SphereSGD"
    else:
        what = "its weights are tiny: gradients grow as 1/‖w‖, and eps takes over"
        after = "lower the weight decay"
    return Finding(
        "warning",
        kind,
        worst[0],
        what,
        f"the length of a row is {worst[1]:.3g} (rms; about 1 at initialization) in {len(layers)} "
        f"layer{'s' * (len(layers) != 1)}{rate}",
        f"geonorm.optim.project_scale_invariant(model.train(), radius=1) rescales them{with_bias} without changing "
        f"outputs in training, except through eps{then}; {after}",
        cure="rescale",
        layers=layers,
    )
