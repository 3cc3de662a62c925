"""Where norms stand: behind another norm, on the logits, over the wrong axis, in several places, behind dropout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ...introspect.graph import input_channels, is_operation, output_channels
from ...introspect.layouts import BOTH, CHANNELS_FIRST, keeps_statistics, own_forward
from ...introspect.observe import call_model, copy_of, norms_of, uncompiled
from ...introspect.shared_channels import measures_batch
from ..behaviour import labels_of
from ..readings import NormReading
from .finding import Finding
from .observations import Observations, never_measured

_SHIFTED = 1.1  # variance with dropout over that without


def idle(observed: Observations) -> Iterator[Finding]:
    """Norms that no batch went through, or that could not be read."""
    if observed.readings.failure:
        return
    for reading in observed.readings.norms.values():
        if not reading.calls:
            yield Finding(
                "note",
                "never ran",
                reading.name,
                "no batch went through this norm",
                "0 calls",
                "remove it if it is not needed",
            )
        elif reading.unread and not reading.bad:
            what = "its input could not be interpreted here"
            yield Finding("note", "not read", reading.name, what, reading.unread, "nothing; it is left out")


def norm_after_norm(observed: Observations) -> Iterator[Finding]:
    """A norm that takes away what the one before has learned."""
    for reading in observed.ran:
        first = observed.readings.norms.get(reading.after) if reading.after else None
        if first is None or not _undoes(reading, first):
            continue
        yield Finding(
            "warning",
            "norm after norm",
            reading.name,
            f"it normalizes what {first.name} has just normalized: γ and β of the first have no effect but their sign",
            f"{type(first.norm).__name__} → {type(reading.norm).__name__}, nothing between",
            "remove one of them",
        )


def _undoes(second: NormReading, first: NormReading) -> bool:
    """Whether a norm takes away the γ and β of the one before: each channel by itself, by what it measures."""
    by_channel = second.axes in ("batch", "instance") and second.axes == first.axes
    return by_channel and measures_batch(second.norm)


def on_the_logits(observed: Observations) -> Iterator[Finding]:
    """A norm whose output is the model's, in a classifier."""
    labels = [labels_of(batch) for batch in observed.batches]
    classes = max((int(found.max()) + 1 for found in labels if found is not None), default=0)
    for reading in observed.ran:
        if reading.name not in observed.readings.last or reading.name == "(model)":
            continue
        scores = next((answer for answer in observed.readings.answers if answer is not None), None)
        if scores is None or scores.dim() != 2 or scores.shape[1] < max(2, classes):
            continue
        sure = bool(classes) and scores.shape[1] <= 20 * classes
        if not sure and not _narrows(observed, reading.name):
            continue
        yield Finding(
            "warning" if sure else "note",
            "norm on the logits",
            reading.name,
            "the last layer is a norm: it fixes the scale of the scores, and with it how sure the network can be"
            + ("" if reading.axes != "batch" else ", and lets the samples of a batch change each other's scores"),
            f"the model's output is that of {type(reading.norm).__name__}, {scores.shape[1]} scores",
            "remove it" if sure else "remove it if these are scores of classes; nothing, if they are features",
            harm=0.3 if sure else 0.0,
        )


def _narrows(observed: Observations, norm: str) -> bool:
    """Whether the layer in front of a norm gives fewer channels than it takes, as a classifier's last one does."""
    near = observed.readings.graph.norms.get(norm)
    operation = None if near is None or near.before is None else observed.modules[near.before]
    return is_operation(operation) and output_channels(operation) < input_channels(operation)


def wrong_axis(observed: Observations) -> Iterator[Finding]:
    """A norm that takes another dimension for the channels than the layer that made its input."""
    for reading in observed.ran:
        norm: Any = reading.norm
        if len(reading.channels) != 1 or reading.dimensions < 3:
            continue
        (channels,) = reading.channels
        if reading.axes in ("batch", "instance", "group"):
            own = 1
        elif reading.axes == "layer" and len(norm.normalized_shape) == 1:
            own = 1 if own_forward(norm) in (CHANNELS_FIRST, BOTH) else reading.dimensions - 1
        else:
            continue
        if channels == own:
            continue
        yield Finding(
            "warning",
            "wrong axis",
            reading.name,
            f"it takes dimension {own} for the channels, but the layer before it has them in dimension {channels}",
            f"{type(norm).__name__} on an input of {reading.dimensions} dimensions",
            "move the channels: x.transpose(1, -1) before and after it, or use the norm of that layout",
            harm=0.5,
        )


def shared(observed: Observations) -> Iterator[Finding]:
    """A norm with running statistics that stands in several places."""
    for reading in observed.ran:
        if (
            not keeps_statistics(reading.norm)
            or not observed.readings.batches
            or reading.calls <= observed.readings.batches
        ):
            continue
        apart = 0.0
        for one in reading.places[1:]:
            first = reading.places[0]
            if one.mean.shape == first.mean.shape:
                eps = float(getattr(reading.norm, "eps", 0.0))
                scale = (first.var + eps).sqrt()
                off = ((one.mean - first.mean) / scale).square() + ((one.var + eps).sqrt() / scale - 1).square()
                apart = max(apart, float(off.mean().sqrt()))
        different = apart > 0.5
        yield Finding(
            "warning" if different else "note",
            "shared norm",
            reading.name,
            "it is used in several places: its running statistics are a mixture"
            + (" that fits none of them" if different else ", which fits as long as all see the same"),
            f"{reading.calls} calls in {observed.readings.batches} batches"
            + (f"; what reaches them differs by {apart:.2g} σ (rms over channels)" if apart else ""),
            "give each place its own norm",
            harm=min(1.0, apart / 2) if different else 0.0,
        )


def dropout(observed: Observations) -> Iterator[Finding]:
    """Running variances that were measured behind dropout, which evaluation does not have."""
    names = {r.name: r.dropout for r in observed.ran if r.axes == "batch" and keeps_statistics(r.norm) and r.dropout}
    names = {name: {layer: p for layer, p in given.items() if p > 0} for name, given in names.items()}
    names = {name: given for name, given in names.items() if given}
    if not names or observed.readings.failure:
        return
    ratios = _variance_ratios(observed, set(names))
    shifted = {name: ratio for name, ratio in ratios.items() if ratio > _SHIFTED and _follows(observed, name, ratio)}
    if not shifted:
        return
    worst = max(shifted, key=lambda name: shifted[name])
    layer, p = max(names[worst].items(), key=lambda pair: pair[1])
    yield Finding(
        "note",
        "variance shift",
        worst,
        "dropout in front of it raises the variance in training and not in evaluation: its running variance is too "
        "large for evaluation",
        f"variance with dropout (p={p:g} at {layer}) is {shifted[worst]:.2f} times that without, in the median channel",
        "move the dropout behind the last norm, or geonorm.recalibrate(model, batches) after training",
        cure="recalibrate",
        layers=sorted(shifted, key=lambda name: -shifted[name]),
        harm=min(1.0, shifted[worst] - 1) * 0.1,
    )


def _follows(observed: Observations, name: str, ratio: float) -> bool:
    """Whether a running variance is that with dropout, and not, as after a recalibration, that without."""
    reading = next(r for r in observed.ran if r.name == name)
    norm: Any = reading.norm
    if never_measured(norm):
        return True
    running, off = norm.running_var.detach().double().cpu(), reading.moments.batch_var()
    found = (running / off.clamp_min(1e-12 + 1e-3 * float(off.median()))).median()
    return float(found) > math.sqrt(ratio)


def _variance_ratios(observed: Observations, norms: set[str]) -> dict[str, float]:
    """Per norm, the variance of its input with dropout on over that with dropout off, in the median over channels."""
    twin = copy_of(observed.model).eval()
    by_name = norms_of(twin)
    for name, norm in by_name.items():
        norm.training = True
        if (name or "(model)") in norms:
            norm._watched = name or "(model)"  # type: ignore[assignment]
    for module in twin.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.training = True
    sums: dict[str, list[torch.Tensor]] = {}

    def hook(norm: Any, inputs: tuple[Any, ...]) -> None:
        rows = inputs[0].movedim(1, 0).flatten(1).double()
        sums.setdefault(norm._watched, []).append(rows.var(1, correction=0))

    for norm in by_name.values():
        if hasattr(norm, "_watched"):
            norm.register_forward_pre_hook(hook)
    with torch.random.fork_rng(), torch.no_grad(), uncompiled():
        torch.manual_seed(0)
        for batch in observed.batches:
            (observed.forward or call_model)(twin, batch)
    observed.evaluation.passes += 1
    found = {}
    for reading in observed.ran:
        if reading.name in sums:
            on = torch.stack(sums[reading.name]).mean(0).cpu()
            off = reading.moments.batch_var()
            ratio = (on / off.clamp_min(1e-12 + 1e-3 * float(off.median()))).median()
            found[reading.name] = float(ratio)
    return found
