"""Batch statistics: too few values, an eps that is too large, running statistics that do not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from ...introspect.layouts import keeps_statistics
from ...introspect.shared_channels import measures_batch
from ..behaviour import compare, percent
from ..readings import NormReading
from ..sphere import collapsed_channels
from .evaluation import answers_with_one_recalibrated
from .finding import Finding, channel_fraction, channel_list
from .observations import Observations, never_measured
from .settings import single_value

# The relative error of a variance from B values is √(2/B): a third at 16.
FEW_VALUES = 16
# How far a norm's output in evaluation may be from training before it is blamed, and before it is a finding by itself;
# in units of γ.
BLAMED, SEVERE = 0.15, 0.4
WARNING_HARM, ERROR_HARM = 0.15, 0.5  # share of outputs that change


def too_few_values(observed: Observations) -> Iterator[Finding]:
    """Norms over one, two or a few values."""
    for reading in observed.ran:
        uses_batch = reading.axes != "batch" or measures_batch(reading.norm)
        if reading.values == 1 and uses_batch:
            yield single_value(
                reading.name, "there is only one value to normalize: it has no spread, so the output is constant"
            )
        elif reading.axes == "batch" and reading.values == 2 and uses_batch:
            yield Finding(
                "warning",
                "two values",
                reading.name,
                "two values per channel always become ±γ + β, and pass no gradient",
                "2 values per channel",
                "use larger batches, or another norm: geonorm.convert(model, 'auggroup(groups=8)')",
                harm=1.0,
            )
        elif reading.axes == "batch" and uses_batch and 2 < reading.values <= FEW_VALUES:
            yield _small_batch(reading, observed)


def _small_batch(reading: NormReading, observed: Observations) -> Finding:
    width = None
    if observed.widths is not None:
        width = next((w for w in observed.widths.layers if w.norm == reading.name), None)
    seen = hidden = ""
    if width is not None:
        seen = f"; {width.name} before it has width {width.width} and rank {width.rank}"
        hidden = f", and {width.kernel} directions of the weights are unconstrained" if width.kernel else ""
    error = math.sqrt(2 / reading.values)
    return Finding(
        "warning",
        "small batch",
        reading.name,
        f"the batch is too small: its statistics are imprecise{hidden}",
        f"{reading.values} values per channel, variance known to ±{100 * error:.0f} %{seen}",
        "use larger batches, statistics over all processes (geonorm.sync), or a norm that does not need the batch: "
        "geonorm.convert(model, 'auggroup(groups=8)')",
        harm=error,
    )


def eps(observed: Observations) -> Iterator[Finding]:
    """An eps that is a large part of the divisor."""
    for reading in observed.ran:
        norm: Any = reading.norm
        value = getattr(norm, "eps", None)
        if not isinstance(value, float) or not value or reading.values < 3:
            continue
        if reading.axes == "batch":
            if not reading.moments.batches:
                continue
            share = value / (reading.moments.batch_var() + value)
            causes = collapsed_channels(reading)
            taken = [c for c in (share > 0.1).nonzero().flatten().tolist() if c not in causes]
            if taken:
                most = float(share[taken].max())
                evidence = (
                    f"{channel_fraction(len(taken), len(share))}: {channel_list(taken)}; eps/(σ²+eps) up to {most:.2f}"
                )
                yield _large_eps(reading.name, value, evidence, taken, len(taken) / len(share))
        elif reading.variances:
            share = value / (torch.cat(reading.variances) + value)
            if float(share.median()) > 0.1:
                rows = {"layer": "samples", "group": "groups", "instance": "channels of samples"}[
                    reading.axes or "layer"
                ]
                evidence = f"the median of eps/(σ²+eps) over {len(share)} {rows} is {float(share.median()):.2f}"
                yield _large_eps(reading.name, value, evidence, [], float(share.median()))


def _large_eps(name: str, value: float, evidence: str, channels: list[int], harm: float) -> Finding:
    cure = f"a smaller eps (it is {value:g})" if value > 1e-5 else "larger weights or inputs before the norm"
    return Finding(
        "warning",
        "eps dominates",
        name,
        "eps is a large part of the divisor: the output is scaled less than it should be",
        evidence,
        cure if value > 1e-5 else f"{cure}, or a smaller eps (it is {value:g})",
        channels,
        harm=harm,
    )


def stale(observed: Observations) -> Iterator[Finding]:
    """Running statistics that do not fit these batches: judged by the network's outputs, then layer by layer."""
    if not observed.has_data or observed.readings.failure or (observed.model.training and not _has_settled(observed)):
        return
    harm = observed.evaluation.harm()
    channels = {r.name: found for r in observed.ran if (found := off_channels(r, observed.readings.samples))}
    blamed = sorted(
        [name for name, off in observed.evaluation.local.items() if off > BLAMED],
        key=lambda name: -observed.evaluation.local[name],
    )
    severe = bool(blamed) and observed.evaluation.local[blamed[0]] > SEVERE
    if not channels and not (harm and blamed) and not severe:
        return
    worst = blamed[0] if blamed else next(iter(channels))
    worst = worst or "(model)"
    layers = list(dict.fromkeys([*(name or "(model)" for name in blamed), *channels]))
    first = layers[0] if worst not in layers else worst
    severity = "error" if harm >= ERROR_HARM else "warning" if channels or harm >= WARNING_HARM else "note"
    yield Finding(
        severity,
        "stale statistics",
        first,
        _what(observed, harm),
        f"{_evidence(observed, first)}{_one_layer(observed, first, harm)}",
        "geonorm.recalibrate(model, batches), if the model is meant for these batches; if not, preprocess them like "
        "the training data (scale, mean, order of channels)",
        channels.get(first, []),
        cure="recalibrate",
        harm=harm,
        layers=layers,
    )


def _has_settled(observed: Observations) -> bool:
    """Whether the running statistics have seen enough batches to forget their initial values."""
    for reading in observed.readings.norms.values():
        norm: Any = reading.norm
        batches = getattr(norm, "num_batches_tracked", None)
        momentum = getattr(norm, "momentum", None)
        if keeps_statistics(norm) and batches is not None and momentum and 0 < momentum < 1:
            return bool((1 - momentum) ** int(batches) < 0.05)
    return True


def _what(observed: Observations, harm: float) -> str:
    if not harm:
        return "the running statistics do not fit these batches; so far this hardly changes the outputs"
    gap = observed.evaluation.agreement
    assert gap is not None
    if gap.predictions is not None:
        return f"evaluation and training disagree on {percent(gap.predictions.share)} of the samples"
    return f"outputs in evaluation and in training differ by {percent(gap.moved)} of their spread"


def _evidence(observed: Observations, layer: str) -> str:
    found = observed.evaluation
    evidence = []
    if found.gap is not None:
        cured = found.cured
        evidence.append(f"after recalibration on these batches, {found.gap}")
        if cured is not None and cured.predictions is not None:
            evidence.append(f"evaluation and training then agree on {percent(1 - cured.predictions.share)}")
    if found.now is not None and found.then is not None:
        evidence.append(f"accuracy {percent(found.now.share)}, recalibrated {percent(found.then.share)}")
    evidence.append(_statistics(observed, layer))
    return "; ".join(text for text in evidence if text)


def _statistics(observed: Observations, layer: str) -> str:
    """The running statistics of one norm compared with the measured ones."""
    reading = next((r for r in observed.ran if r.name == layer), None)
    if reading is None or not reading.moments.batches:
        return ""
    norm: Any = reading.norm
    mean, var = norm.running_mean.detach().double().cpu(), norm.running_var.detach().double().cpu()
    seen = reading.moments
    scale = (var.clamp_min(0) + norm.eps).sqrt() / (seen.var + norm.eps).sqrt()
    off = (mean - seen.mean).abs() / (seen.var + norm.eps).sqrt()
    usual = float(scale.median())
    even = float((scale.log() - math.log(max(usual, 1e-300))).abs().median()) < 0.05
    alike = f"σ is {1 / max(usual, 1e-300):.3g} times the running σ in all channels" if even else ""
    worst = int(off.argmax())
    return (
        f"at {layer} "
        + (alike or f"running σ over measured σ from {float(scale.min()):.2g} to {float(scale.max()):.2g}")
        + f", means off by up to {float(off.max()):.2g} σ (channel {worst})"
    )


def _one_layer(observed: Observations, layer: str, harm: float) -> str:
    """How much of the disagreement one norm explains."""
    if not harm or observed.evaluation.gap is None or len(observed.evaluation.local) < 2:
        return ""
    name = "" if layer == "(model)" else layer
    if name not in observed.evaluation.local:
        return ""
    alone = compare(
        answers_with_one_recalibrated(observed.model, name, observed.batches, observed.forward),
        observed.readings.answers,
    )
    observed.evaluation.passes += 2
    before = observed.evaluation.agreement
    if alone is None or before is None:
        return ""
    if alone.predictions is not None and before.predictions is not None:
        return (
            f"; with only {layer} recalibrated, they disagree on {percent(alone.predictions.share)}, not "
            f"{percent(before.predictions.share)}"
        )
    return f"; with only {layer} recalibrated, outputs differ by {percent(alone.moved)}, not {percent(before.moved)}"


def off_channels(reading: NormReading, samples: int) -> list[int]:
    """Channels whose running statistics differ from the measured ones by more than sampling explains."""
    norm: Any = reading.norm
    if reading.axes != "batch" or not reading.moments.batches or not keeps_statistics(norm) or never_measured(norm):
        return []
    mean, var = norm.running_mean.detach().double().cpu(), norm.running_var.detach().double().cpu()
    if not bool(mean.isfinite().all() and var.isfinite().all()):
        return []
    measured = reading.moments.var.clamp_min(norm.eps)
    # Values within a sample are correlated, so only the samples count as independent.
    off = (mean - reading.moments.mean).abs() / measured.sqrt()
    ratio = ((var.clamp_min(0) + norm.eps) / (measured + norm.eps)).log().abs()
    bad = (off > 1 + 4 / math.sqrt(samples)) | (ratio > math.log(4) + 4 * math.sqrt(2 / samples))
    return [int(c) for c in bad.nonzero().flatten()]
