"""Settings of norms: momentum, modes, lost statistics, frozen parameters, processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from ...introspect.axes import axes_of
from ...introspect.layouts import is_frozen, keeps_statistics
from .finding import Finding
from .observations import Observations, affine_moved, never_measured

# Below SLOW, four fifths of the initial values are left after a thousand batches. Above FAST, the running statistics
# are mostly those of the last batch. MNASNet is trained with 0.0003, on many batches.
SLOW, FAST = 2e-4, 0.5
FEW_VALUES = 32  # per channel and process


def momentum(observed: Observations) -> Iterator[Finding]:
    """Momentum far from any useful value."""
    for reading in observed.readings.norms.values():
        norm: Any = reading.norm
        value = getattr(norm, "momentum", None)
        if not keeps_statistics(norm) or value is None:
            continue
        batches = getattr(norm, "num_batches_tracked", None)
        number = 0 if batches is None else int(batches)
        left = (1 - value) ** number if 0 < value < 1 else 0.0  # of the initial values
        if SLOW < value <= FAST and not (value < 1e-3 and number and left > 0.05):
            continue
        if value == 0:
            effect = "never follow the data"
        elif value == 1:
            effect = "are those of the last batch alone"
        elif not 0 < value < 1:
            effect = "diverge"
        elif value > FAST:
            effect = "are mostly those of the last batch; in torch, momentum is the weight of the new batch"
        else:
            effect = f"take {1 / value:.0f} batches to follow the data"
        start = (
            f", {100 * left:.0f} % of the initial values is left after {number} batches"
            if number and 0 < value < SLOW
            else ""
        )
        yield Finding(
            "error" if not 0 <= value <= 1 else "warning",
            "momentum",
            reading.name,
            f"momentum is {value:g}: the running statistics {effect}",
            f"momentum={value:g}{start}",
            "use 0.1, or None for the average over all batches"
            + (f"; {value:g} in other frameworks is {1 - value:.3g} in torch" if FAST < value < 1 else "")
            + ". Then geonorm.recalibrate(model, batches)",
            cure="momentum",
        )


def modes(observed: Observations) -> Iterator[Finding]:
    """Norms in evaluation inside a model in training."""
    if not observed.model.training:
        return
    for reading in observed.readings.norms.values():
        norm = reading.norm
        if not keeps_statistics(norm) or not (is_frozen(norm) or not norm.training):
            continue
        on_purpose = is_frozen(norm)
        yield Finding(
            "note" if on_purpose else "warning",
            "not training",
            reading.name,
            "the model is in training mode and this norm is not: it uses running statistics and does not update them",
            "frozen by geonorm.freeze" if on_purpose else "norm.training is False, model.training is True",
            "nothing, if that is intended"
            if on_purpose
            else "model.train(); if it is intended, use geonorm.freeze(model)",
            cure="" if on_purpose else "train",
        )


def lost_statistics(observed: Observations) -> Iterator[Finding]:
    """Running statistics with their initial values, in a model that is in evaluation or was trained."""
    norms = {
        r.name: r.norm for r in observed.readings.norms.values() if keeps_statistics(r.norm) and not is_frozen(r.norm)
    }
    lost = [name for name, norm in norms.items() if never_measured(norm)]
    if not lost:
        return
    counted = [getattr(norms[name], "num_batches_tracked", None) for name in lost]
    moved = [name for name in lost if affine_moved(norms[name])]
    some_measured = len(lost) < len(norms)
    in_use = not observed.model.training
    if not in_use and not moved and not (some_measured and observed.is_trained):
        return  # a fresh model
    why = "the model is in evaluation" if in_use else "γ and β were trained"
    if some_measured:
        why += f", and {len(norms) - len(lost)} other norms have statistics"
    number = f"num_batches_tracked is {int(counted[0])}, " if counted[0] is not None else ""
    yield Finding(
        "warning",
        "lost statistics",
        lost[0],
        f"the running statistics still have their initial values, but {why}",
        f"{number}running_mean is 0 and running_var is 1 in {len(lost)} of {len(norms)} norms",
        "load a state_dict that contains the buffers, or geonorm.recalibrate(model, batches)",
        cure="recalibrate",
        layers=lost,
    )


def frozen_parameters(observed: Observations) -> Iterator[Finding]:
    """Frozen γ and β, with running statistics that still change."""
    trains = any(p.requires_grad for p in observed.model.parameters())
    found = []
    for reading in observed.readings.norms.values():
        norm: Any = reading.norm
        own = [p for p in (getattr(norm, "weight", None), getattr(norm, "bias", None)) if isinstance(p, nn.Parameter)]
        moving = keeps_statistics(norm) and not is_frozen(norm) and norm.training and norm.momentum != 0
        if own and moving and observed.model.training and not any(p.requires_grad for p in own):
            found.append(reading.name)
    if found and trains:
        yield Finding(
            "warning",
            "half frozen",
            found[0],
            "its γ and β are frozen, but the running statistics still follow every batch: the frozen part changes",
            f"requires_grad is False and training is True in {len(found)} norms",
            "geonorm.freeze(model, where=...) freezes the statistics too",
            cure="freeze",
            layers=found,
        )


def not_synced(observed: Observations) -> Iterator[Finding]:
    """Batch norms over few samples in each of several processes."""
    wrapped = isinstance(observed.model, nn.parallel.DistributedDataParallel)
    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if size < 2:
        return
    alone = [
        r.name
        for r in observed.ran
        if r.axes == "batch"
        and not isinstance(r.norm, nn.SyncBatchNorm)
        and getattr(r.norm, "process_group", None) is None
        and 1 < r.values <= FEW_VALUES
        and not is_frozen(r.norm)
    ]
    if alone:
        values = min(r.values for r in observed.ran if r.name in alone)
        yield Finding(
            "warning",
            "not synced",
            alone[0],
            f"each of {size} processes normalizes with its own few samples",
            f"{values} values per channel in this process" + (", model is DistributedDataParallel" if wrapped else ""),
            "geonorm.sync(model) computes the statistics over all processes",
            layers=alone,
        )


def few_features(observed: Observations) -> Iterator[Finding]:
    """A LayerNorm over a single value."""
    for reading in observed.readings.norms.values():
        norm: Any = reading.norm
        if axes_of(norm) == "layer" and torch.Size(norm.normalized_shape).numel() == 1:
            yield single_value(reading.name, "each sample has only one value to normalize: the output is constant")


def single_value(name: str, what: str) -> Finding:
    """The finding for a group of one value."""
    return Finding(
        "error",
        "single value",
        name,
        what,
        "1 value per group",
        "normalize over more values (other groups, larger images or batches), or remove the norm",
        harm=1.0,
    )
