"""Faults that show when batches run through a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from ..surgery.layouts import keeps_statistics
from .axes import channel_affine
from .batch_width import BatchWidth
from .finding import Finding, part, some
from .pairing import measures_batch
from .readings import NormReading, Readings
from .sphere import collapsed_channels
from .standing_faults import never_measured, single_value

# The relative error of a variance from B values is √(2/B): a third at 16.
FEW_VALUES = 16
# Below, running statistics cannot be told from noise.
FEW_SAMPLES = 16
# A Gaussian has 1; one sample in ten moved by 10σ has 3; Laplace 1.4.
HEAVY = 2.5
MANY = 0.25  # of the channels
FAR = 5.0  # in spreads of the middle half


def data_faults(readings: Readings, widths: BatchWidth | None, synthetic: bool) -> Iterator[Finding]:
    """All of them, in the order of the model; on made-up inputs only what does not depend on the data."""
    if readings.bad_data:
        yield Finding(
            "error", "bad data", "(batches)", "the batches have NaN or Inf in them", "found in an input", "clean them"
        )
    if readings.failure:
        yield Finding(
            "error",
            "does not run",
            "(model)",
            "the model fails on these batches; what comes after that point was not looked at",
            readings.failure,
            "mend it, or say how to call the model with forward=",
        )
    for reading in readings.norms.values():
        yield from _of_norm(reading, readings, widths, synthetic)
    for relu in readings.relus.values():
        dead = (~relu.alive).nonzero().flatten().tolist()
        # Without a norm in front, a few such channels are common in a healthy network.
        few = not relu.by_norm and len(dead) < 0.1 * len(relu.alive)
        if dead and not few and not synthetic and relu.samples >= FEW_SAMPLES:
            yield Finding(
                "warning" if relu.by_norm else "note",
                "dead channels",
                relu.name,
                "channels are 0 behind the ReLU for every sample: they pass nothing on and get no gradient",
                f"{part(len(dead), len(relu.alive))} over {relu.samples} samples: {some(dead)}",
                "raise β of these channels to 0 or start them anew; a lower learning rate keeps others alive",
                dead,
            )


def _of_norm(reading: NormReading, readings: Readings, widths: BatchWidth | None, synthetic: bool) -> Iterator[Finding]:
    name = reading.name
    if not reading.calls:
        if not readings.failure:
            yield Finding(
                "note", "never ran", name, "no batch went through this norm", "0 calls", "remove it if it is not needed"
            )
        return
    if reading.bad and not readings.bad_data:
        where = "reach it" if reading.bad == "input" else "come out of it"
        yield Finding(
            "error",
            "not finite",
            name,
            f"NaN or Inf {where}, from finite batches",
            f"in its {reading.bad}",
            "look at the layers before it, the first one named here is the source; lower the learning rate",
        )
        return
    if reading.unread:
        if not readings.failure:
            what = "its input could not be made sense of here"
            yield Finding("note", "not read", name, what, reading.unread, "nothing; it is left out")
        return
    uses_batch = reading.axes != "batch" or measures_batch(reading.norm)
    if reading.values == 1 and uses_batch:
        yield single_value(name, "there is one value to normalize: it has no spread, and the output is constant")
        return
    if reading.axes == "batch" and reading.values == 2 and uses_batch:
        yield Finding(
            "warning",
            "two values",
            name,
            "two values per channel become ±γ + β whatever they are, and pass no gradient",
            "2 values per channel",
            "use larger batches, or another norm: geonorm.convert(model, 'auggroup(groups=8)')",
        )
    if reading.after and _undoes(reading, readings.norms[reading.after]):
        yield Finding(
            "warning",
            "norm after norm",
            name,
            f"it normalizes what {reading.after} has just normalized: the first one's γ and β have no effect but "
            "their sign",
            f"{type(readings.norms[reading.after].norm).__name__} → {type(reading.norm).__name__}, nothing between",
            "remove one of them",
        )
    if keeps_statistics(reading.norm) and readings.batches and reading.calls > readings.batches:
        yield Finding(
            "note",
            "shared norm",
            name,
            "it stands in several places: its running statistics are a mixture that fits none of them",
            f"{reading.calls} calls in {readings.batches} batches",
            "give each place its own norm",
        )
    if reading.axes == "batch" and reading.moments.batches:
        if uses_batch:
            yield from _small_batch(reading, widths)
        yield from _collapsed(reading)
        if not synthetic:
            yield from _stale(reading, readings.samples)
            yield from _heavy_tails(reading)


def _undoes(second: NormReading, first: NormReading) -> bool:
    """Whether a norm takes away the γ and β of the one before: each channel by itself, by what it measures."""
    by_channel = second.axes in ("batch", "instance") and second.axes == first.axes
    return by_channel and measures_batch(second.norm)


def _collapsed(reading: NormReading) -> Iterator[Finding]:
    norm: Any = reading.norm
    if reading.values < 3:
        return
    causes = collapsed_channels(reading)
    channels = len(reading.moments.mean)
    if causes:
        numbers = list(causes)
        reasons = sorted(set(causes.values()), key=list(causes.values()).count, reverse=True)
        variance = reading.moments.batch_var()[numbers[0]]
        affine = channel_affine(norm)
        gamma = "" if affine is None else f", γ={float(affine[0][numbers[0]]):.3g}"
        yield Finding(
            "warning",
            "collapsed channels",
            reading.name,
            f"channels give a constant: {'; '.join(reasons)}",
            f"{part(len(numbers), channels)}: {some(numbers)}; in {numbers[0]} σ²={float(variance):.3g} at "
            f"eps={norm.eps:g}{gamma}",
            "remove them (geonorm.analysis.prune), or start them anew with less weight decay on them",
            numbers,
        )
    share = norm.eps / (reading.moments.batch_var() + norm.eps)
    taken = [c for c in (share > 0.1).nonzero().flatten().tolist() if c not in causes]
    if taken:
        yield Finding(
            "warning",
            "eps dominates",
            reading.name,
            "eps is a large part of the divisor: these channels are scaled less than they should be",
            f"{part(len(taken), channels)}: {some(taken)}; eps/(σ²+eps) up to {float(share[taken].max()):.2f}",
            f"a smaller eps (it is {norm.eps:g}), or larger weights before the norm",
            taken,
        )


def _stale(reading: NormReading, samples: int) -> Iterator[Finding]:
    norm: Any = reading.norm
    if not keeps_statistics(norm) or never_measured(norm):
        return
    mean, var = norm.running_mean.detach().double().cpu(), norm.running_var.detach().double().cpu()
    if not bool(mean.isfinite().all() and var.isfinite().all()) or samples < FEW_SAMPLES:
        return
    measured = reading.moments.var.clamp_min(norm.eps)
    # Values of one sample resemble each other: the samples are what counts as independent.
    off = (mean - reading.moments.mean).abs() / measured.sqrt()
    ratio = ((var.clamp_min(0) + norm.eps) / (measured + norm.eps)).log().abs()
    bad_mean = off > 1 + 4 / math.sqrt(samples)
    bad_var = ratio > math.log(4) + 4 * math.sqrt(2 / samples)
    for kind, bad, size in (("mean", bad_mean, off), ("variance", bad_var, ratio)):
        channels = bad.nonzero().flatten().tolist()
        if not channels:
            continue
        worst = channels[int(size[channels].argmax())]
        far = f"{float(off[worst]):.3g} σ" if kind == "mean" else f"a factor {math.exp(float(ratio[worst])):.3g}"
        yield Finding(
            "warning",
            f"stale running {kind}",
            reading.name,
            "the running statistics are not those of these batches: evaluation and training see different things",
            f"{part(len(channels), len(mean))}; off by {far} in channel {worst}, from {samples} samples",
            "geonorm.recalibrate(model, batches)",
            channels,
        )


def _heavy_tails(reading: NormReading) -> Iterator[Finding]:
    """Places of the data that are far out in most channels, and so many channels whose σ they have blown up.

    A channel that answers to one class of the data has heavy tails too. Broken samples show in most channels at once.
    """
    if reading.moments.number < 2 * FEW_SAMPLES:
        return
    low, middle, high = reading.moments.quartiles()
    sigma, robust = reading.moments.var.sqrt(), (high - low) / 1.349  # equal for a Gaussian
    usable = robust > 1e-3 * sigma  # zeros behind a ReLU have no middle half
    if not bool(usable.any()):
        return
    far = (reading.moments.sample() - middle[:, None]).abs()[usable] > FAR * robust[usable, None]
    broken = far.double().mean(0) >= 0.5
    weight = torch.where(usable, sigma / torch.where(usable, robust, 1.0), 1.0)
    channels = (weight > HEAVY).nonzero().flatten().tolist()
    share = float(broken.double().mean())
    if not 0 < share < 0.25 or len(channels) < MANY * len(weight):
        return
    worst, bears = int(weight.argmax()), getattr(reading.norm, "spread", None) == "robust"
    pulled = "they pull the mean and blow up the spread, and the rest is squeezed together"
    yield Finding(
        "note" if bears else "warning",
        "outliers",
        reading.name,
        f"a few samples are far out in most channels: {'its robust spread bears them' if bears else pulled}",
        f"{100 * share:.2g} % of the values; {part(len(channels), len(weight))} have σ above {HEAVY:g} times that of "
        f"the middle half, channel {worst} {float(weight[worst]):.2g} times",
        "clean the data" + ("" if bears else ", or geonorm.convert(model, 'robustbn'), which resists outliers"),
        channels,
    )


def _small_batch(reading: NormReading, widths: BatchWidth | None) -> Iterator[Finding]:
    if not 2 < reading.values <= FEW_VALUES:
        return
    width = next((w for w in widths.layers if w.norm == reading.name), None) if widths is not None else None
    seen = hidden = ""
    if width is not None:
        seen = f"; {width.name} before it has width {width.width}, rank {width.rank} and kernel {width.kernel}"
        hidden = f", and {width.kernel} directions of the weights are not seen" if width.kernel else ""
    yield Finding(
        "warning",
        "small batch",
        reading.name,
        f"the batch is too small for it: its statistics are rough{hidden}",
        f"{reading.values} values per channel, variance known to ±{100 * math.sqrt(2 / reading.values):.0f} %{seen}",
        "use larger batches, statistics over processes (geonorm.sync), or a norm that does not need the batch: "
        "geonorm.convert(model, 'auggroup(groups=8)')",
    )
