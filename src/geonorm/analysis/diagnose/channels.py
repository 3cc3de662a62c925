"""Channels that do nothing, or too much: collapsed, dead, exploded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...introspect.axes import channel_affine
from ..sphere import collapsed_channels, tiny_gamma
from .finding import Finding, channel_fraction, channel_list
from .observations import FEW_SAMPLES, Observations, gamma_of

# γ starts at 1, and training moves it by factors of a few.
LARGE, FAR_FROM_MEDIAN = 20.0, 30.0
LOUD = 1e3  # rms of an operation's input; after a norm it is about 1


def collapsed(observed: Observations) -> Iterator[Finding]:
    """Channels whose output is constant."""
    for reading in observed.ran:
        norm: Any = reading.norm
        if reading.axes != "batch":
            yield from _tiny_features(reading.name, norm)
            continue
        if not reading.moments.batches or reading.values < 3:
            continue
        causes = collapsed_channels(reading)
        channels = len(reading.moments.mean)
        if not causes:
            continue
        numbers = list(causes)
        reasons = sorted(set(causes.values()), key=list(causes.values()).count, reverse=True)
        variance = reading.moments.batch_var()[numbers[0]]
        affine = channel_affine(norm)
        gamma = "" if affine is None else f", γ={float(affine[0][numbers[0]]):.3g}"
        yield Finding(
            "warning",
            "collapsed channels",
            reading.name,
            f"the output of some channels is constant: {'; '.join(reasons)}",
            f"{channel_fraction(len(numbers), channels)}: {channel_list(numbers)}; in {numbers[0]} "
            f"σ²={float(variance):.3g} at eps={norm.eps:g}{gamma}",
            "remove them (geonorm.analysis.prune), or reinitialize them with less weight decay",
            numbers,
            harm=len(numbers) / channels,
        )


def _tiny_features(name: str, norm: Any) -> Iterator[Finding]:
    gamma = gamma_of(norm)
    small = [] if gamma is None else tiny_gamma(gamma).nonzero().flatten().tolist()
    if gamma is None or not small:
        return
    yield Finding(
        "warning",
        "collapsed channels",
        name,
        "the output of some features is constant: γ is almost 0",
        f"{len(small)} of {len(gamma)} features: {channel_list(small)}; largest γ {float(gamma.max()):.3g}",
        "reinitialize their γ with less weight decay",
        small,
        harm=len(small) / len(gamma),
    )


def exploded_gamma(observed: Observations) -> Iterator[Finding]:
    """γ far beyond its usual range after training."""
    for reading in observed.readings.norms.values():
        norm: Any = reading.norm
        gamma = gamma_of(norm)
        if gamma is None:
            continue
        usual = float(gamma.median())
        large = (gamma > max(LARGE, FAR_FROM_MEDIAN * min(usual, 1.0))).nonzero().flatten().tolist()
        if not large:
            continue
        yield Finding(
            "warning",
            "exploded gamma",
            reading.name,
            "its γ is far larger than usual after training: these channels dominate the others",
            f"{channel_fraction(len(large), len(gamma))}: {channel_list(large)}; |γ| up to {float(gamma.max()):.3g}, "
            f"median {usual:.3g}",
            "load a checkpoint from before it happened; lower the learning rate, and use weight decay on γ",
            large,
            harm=min(1.0, math.log10(float(gamma.max())) / 4),
        )


def exploded_activations(observed: Observations) -> Iterator[Finding]:
    """Activations far larger than the output of a norm."""
    if observed.activation_effect is None or observed.synthetic:
        return
    given = max(observed.readings.input.largest, 1.0)
    loud = [a for a in observed.activation_effect.operations if math.isfinite(a.rms) and a.rms > LOUD * given]
    if loud:
        yield Finding(
            "warning",
            "exploded activations",
            loud[0].name,
            "its input is far larger than the output of a norm: gradients and rounding errors grow with it",
            f"rms {loud[0].rms:.3g} in {len(loud)} layers",
            "check the layer before it (γ, weights, a missing norm), lower the learning rate, or clip gradients",
            layers=[a.name for a in loud],
        )


def dead(observed: Observations) -> Iterator[Finding]:
    """Channels that are 0 after a ReLU for every sample."""
    if observed.synthetic:
        return
    for relu in observed.readings.relus.values():
        numbers = (~relu.alive).nonzero().flatten().tolist()
        share = len(numbers) / len(relu.alive)
        # A few such channels are common in a healthy network, unless β itself keeps them negative.
        held = [c for c in numbers if c in _held_down(observed, relu.name)]
        if not numbers or (not held and share < 0.1) or relu.samples < FEW_SAMPLES:
            continue
        yield Finding(
            "warning" if held or share >= 0.5 else "note",
            "dead channels",
            relu.name,
            "channels are 0 after the ReLU for every sample: they pass nothing on and get no gradient",
            f"{channel_fraction(len(numbers), len(relu.alive))} over {relu.samples} samples: {channel_list(numbers)}",
            "set β of these channels to 0, or reinitialize them; a lower learning rate keeps others alive",
            numbers,
            harm=share,
            is_root=bool(held),
        )


def _held_down(observed: Observations, name: str) -> set[int]:
    """Channels of a batch norm that are negative even at 6 standard deviations."""
    reading = observed.readings.norms.get(name)
    affine = None if reading is None or reading.axes != "batch" else channel_affine(reading.norm)
    if affine is None:
        return set()
    return set((affine[1] + 6 * affine[0].abs() < 0).nonzero().flatten().tolist())


def silent_branches(observed: Observations) -> Iterator[Finding]:
    """Residual branches that add nothing, in a network that was trained."""
    quiet = []
    for found in observed.readings.sums.values():
        one, other = (math.sqrt(square / found.calls) for square in found.squares)
        small, large = min(one, other), max(one, other)
        if large > 0 and small < 1e-4 * large:
            maker = found.makers[0 if one < other else 1]
            quiet.append((maker or found.name, small / large))
    zero = [
        r.name
        for r in observed.readings.norms.values()
        if (gamma := gamma_of(r.norm)) is not None and float(gamma.max()) == 0
    ]
    if not quiet and not zero:
        return
    layers = list(dict.fromkeys([name for name, _ in quiet] + zero))
    if observed.is_trained and quiet:
        yield Finding(
            "warning",
            "silent branches",
            layers[0],
            "the network was trained, and these residual branches still add nothing",
            f"{len(quiet)} sums, where the branch is at most {max(share for _, share in quiet):.2g} of the other term",
            "check that the last γ (or scale) of the branch is trained: in the optimizer, with a gradient, and not "
            "held at 0 by weight decay",
            layers=layers,
            harm=len(quiet) / max(1, len(observed.readings.sums)),
        )
    elif zero:
        yield Finding(
            "note",
            "gamma zero",
            zero[0],
            "all γ are 0: its input has no effect yet",
            f"{len(zero)} norm{'s' * (len(zero) != 1)}",
            "nothing, if a residual branch is initialized this way; otherwise set γ to 1",
            layers=zero,
        )
