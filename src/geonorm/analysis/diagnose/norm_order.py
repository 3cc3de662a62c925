"""Where norms are: after another norm, on the logits, over the wrong axis, in several places, after dropout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ...introspect.graph import input_channels, is_operation, output_channels
from ...introspect.layouts import BOTH, CHANNELS_FIRST, keeps_statistics, own_forward
from ...introspect.observe import call_model, copy_of, norms_of, random_state_restored, uncompiled
from ...introspect.shared_channels import measures_batch
from ..behaviour import labels_of
from ..readings import NormReading
from .finding import Finding
from .observations import Observations, never_measured

_SHIFTED = 1.1  # variance with dropout over that without


def unused_norms(observed: Observations) -> Iterator[Finding]:
    """Norms that never ran, or whose input could not be read."""
    if observed.readings.failure:
        return
    for reading in observed.readings.norms.values():
        if not reading.calls:
            yield Finding(
                "note",
                "never ran",
                reading.name,
                "this norm never ran",
                "0 calls",
                "remove it if it is not needed",
            )
        elif reading.unread and not reading.bad:
            what = "its input could not be interpreted"
            yield Finding(
                "note", "not read", reading.name, what, reading.unread, "nothing; the other checks skip this norm"
            )


def norm_after_norm(observed: Observations) -> Iterator[Finding]:
    """A norm that undoes what the one before it has learned."""
    for reading in observed.ran:
        first = observed.readings.norms.get(reading.after) if reading.after else None
        if first is None or not _undoes(reading, first):
            continue
        yield Finding(
            "warning",
            "norm after norm",
            reading.name,
            f"it normalizes the output of {first.name} again: γ and β of {first.name} have no effect, except for the "
            "sign of γ",
            f"{type(first.norm).__name__} → {type(reading.norm).__name__}, nothing in between",
            "remove one of them",
        )


def _undoes(second: NormReading, first: NormReading) -> bool:
    """Whether a norm cancels γ and β of the one before: both work per channel, and it uses batch statistics."""
    by_channel = second.axes in ("batch", "instance") and second.axes == first.axes
    return by_channel and measures_batch(second.norm)


def on_the_logits(observed: Observations) -> Iterator[Finding]:
    """A norm as the last layer of a classifier."""
    labels = [labels_of(batch) for batch in observed.batches]
    classes = max((int(found.max()) + 1 for found in labels if found is not None), default=0)
    for reading in observed.ran:
        if reading.name not in observed.readings.last or reading.name == "(model)":
            continue
        scores = next((answer for answer in observed.readings.answers if answer is not None), None)
        if scores is None or scores.dim() != 2 or scores.shape[1] < max(2, classes):
            continue
        has_classes = bool(classes) and scores.shape[1] <= 20 * classes
        if not has_classes and not _narrows(observed, reading.name):
            continue
        yield Finding(
            "warning" if has_classes else "note",
            "norm on the logits",
            reading.name,
            "the last layer is a norm: it fixes the scale of the scores, which limits how confident the network can be"
            + ("" if reading.axes != "batch" else ", and lets the samples of a batch change each other's scores"),
            f"the model returns the output of {type(reading.norm).__name__}, {scores.shape[1]} scores",
            "remove it" if has_classes else "remove it if these are class scores; nothing, if they are features",
            harm=0.3 if has_classes else 0.0,
        )


def _narrows(observed: Observations, norm: str) -> bool:
    """Whether the layer before a norm has fewer outputs than inputs, as a classifier's last one does."""
    near = observed.readings.graph.norms.get(norm)
    operation = None if near is None or near.before is None else observed.modules[near.before]
    return is_operation(operation) and output_channels(operation) < input_channels(operation)


def wrong_axis(observed: Observations) -> Iterator[Finding]:
    """A norm that expects the channels in a different dimension than the layer before it has them."""
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
            f"it expects the channels in dimension {own}, but the layer before it has them in dimension {channels}",
            f"{type(norm).__name__} on an input of {reading.dimensions} dimensions",
            "move the channels: x.transpose(1, -1) before and after it, or use the norm for that layout",
            harm=0.5,
        )


def shared(observed: Observations) -> Iterator[Finding]:
    """A norm with running statistics that is used in several places."""
    for reading in observed.ran:
        if (
            not keeps_statistics(reading.norm)
            or not observed.readings.batches
            or reading.calls <= observed.readings.batches
        ):
            continue
        difference = 0.0
        for one in reading.places[1:]:
            first = reading.places[0]
            if one.mean.shape == first.mean.shape:
                eps = float(getattr(reading.norm, "eps", 0.0))
                scale = (first.var + eps).sqrt()
                off = ((one.mean - first.mean) / scale).square() + ((one.var + eps).sqrt() / scale - 1).square()
                difference = max(difference, float(off.mean().sqrt()))
        different = difference > 0.5
        yield Finding(
            "warning" if different else "note",
            "shared norm",
            reading.name,
            "it is used in several places: its running statistics are a mixture"
            + (" that fits none of them" if different else ", which fits as long as the inputs are alike"),
            f"{reading.calls} calls in {observed.readings.batches} batch{'es' * (observed.readings.batches != 1)}"
            + (f"; the inputs differ by {difference:.2g} σ (rms over channels)" if difference else ""),
            "give each place its own norm",
            harm=min(1.0, difference / 2) if different else 0.0,
        )


def dropout(observed: Observations) -> Iterator[Finding]:
    """Running variances measured after dropout, which evaluation does not apply."""
    names = {r.name: r.dropout for r in observed.ran if r.axes == "batch" and keeps_statistics(r.norm) and r.dropout}
    names = {name: {layer: p for layer, p in given.items() if p > 0} for name, given in names.items()}
    names = {name: given for name, given in names.items() if given}
    if not names or observed.readings.failure:
        return
    ratios = _variance_ratios(observed, set(names))
    shifted = {
        name: ratio for name, ratio in ratios.items() if ratio > _SHIFTED and _includes_dropout(observed, name, ratio)
    }
    if not shifted:
        return
    worst = max(shifted, key=lambda name: shifted[name])
    layer, p = max(names[worst].items(), key=lambda pair: pair[1])
    yield Finding(
        "note",
        "variance shift",
        worst,
        "dropout before it raises the variance in training but not in evaluation: its running variance is too "
        "large for evaluation",
        f"in the median channel, dropout (p={p:g} at {layer}) multiplies the variance by {shifted[worst]:.2f}",
        "move the dropout after the last norm, or geonorm.recalibrate(model, batches) after training",
        cure="recalibrate",
        layers=sorted(shifted, key=lambda name: -shifted[name]),
        harm=min(1.0, shifted[worst] - 1) * 0.1,
    )


def _includes_dropout(observed: Observations, name: str, ratio: float) -> bool:
    """Whether a running variance was measured with dropout; after recalibration it is not."""
    reading = next(r for r in observed.ran if r.name == name)
    norm: Any = reading.norm
    if never_measured(norm):
        return True
    running, off = norm.running_var.detach().double().cpu(), reading.moments.batch_var()
    found = (running / off.clamp_min(1e-12 + 1e-3 * float(off.median()))).median()
    return float(found) > math.sqrt(ratio)


def _variance_ratios(observed: Observations, norms: set[str]) -> dict[str, float]:
    """For each norm, the variance of its input with dropout over that without: the median over channels."""
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
    with random_state_restored(twin), torch.no_grad(), uncompiled():
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
