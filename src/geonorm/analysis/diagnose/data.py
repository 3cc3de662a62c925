"""The data: scale, padding, order, outliers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

import torch
from torch import Tensor

from ...introspect.shared_channels import measures_batch
from ..behaviour import labels_of, percent
from ..readings import NormReading
from .finding import Finding, channel_fraction, channel_list
from .observations import FEW_SAMPLES, Observations

# Standardized inputs have rms 1; pixels from 0 to 255 have a standard deviation of about 70 around a mean of 120.
WIDE, OFFSET, UNLIKE = 10.0, 5.0, 1e3
PADDED = 0.1
# σ over that of the middle half: 1 for a Gaussian, 1.4 for Laplace, 3 if one sample in ten is moved by 10σ.
HEAVY = 2.5
MANY = 0.25  # of the channels
FAR = 5.0  # in spreads of the middle half
FEW_BATCHES = 3


def not_normalized(observed: Observations) -> Iterator[Finding]:
    """Inputs far from mean 0 and standard deviation 1."""
    given = observed.readings.input
    if not observed.has_data or not given.shape:
        return
    size = math.sqrt(given.mean**2 + given.std**2)
    evidence = f"mean {given.mean:.3g}, standard deviation {given.std:.3g}, largest {given.largest:.3g}"
    unlike = 1.0
    if given.scales is not None:
        varying = given.scales[given.scales > 1e-6 * max(float(given.scales.max()), 1e-30)]
        if len(varying) > 1:
            unlike = float(varying.max() / varying.median())
            evidence += (
                f"; standard deviations of features from {float(varying.min()):.3g} to {float(varying.max()):.3g}"
            )
    far = given.std > 0 and abs(given.mean) > OFFSET * given.std and abs(given.mean) > 1
    tiny = 0 < size < 1e-2
    if size <= WIDE and not far and not tiny and unlike < UNLIKE:
        return
    first = _first_norm(observed)
    # A norm over the batch removes the scale of the whole input, but not that of single features.
    is_removed = first is not None and first.axes in ("batch", "instance") and first.calls and unlike < UNLIKE
    yield Finding(
        "note" if is_removed else "warning",
        "input not normalized",
        "(batches)",
        "the inputs are far from mean 0 and standard deviation 1"
        + (
            f"; {first.name} removes this in training, but it affects weights and learning rates"
            if is_removed and first
            else ""
        ),
        evidence,
        "subtract the mean and divide by the standard deviation of the training data, feature by feature or channel by "
        "channel",
        harm=0.0 if is_removed else 0.3,
    )


def _first_norm(observed: Observations) -> NormReading | None:
    return next(iter(observed.ran), None)


def padding(observed: Observations) -> Iterator[Finding]:
    """Padding that enters the statistics of a batch norm."""
    if observed.readings.input.padded <= PADDED or observed.synthetic:
        return
    hit = [r.name for r in observed.ran if r.axes in ("batch", "instance") and measures_batch(r.norm)]
    if hit:
        yield Finding(
            "warning",
            "padding counts",
            hit[0],
            "sequences are padded, and the padding enters its mean and variance",
            f"{percent(observed.readings.input.padded)} of the positions are padding",
            "normalize each position by itself (LayerNorm), or pass the mask to a geonorm layer: norm(x, mask=mask)",
            layers=hit,
            harm=observed.readings.input.padded,
        )


def sorted_batches(observed: Observations) -> Iterator[Finding]:
    """Batches that differ from each other by more than chance, as in sorted data."""
    if not observed.has_data:
        return
    norms = [r for r in observed.ran if r.axes == "batch" and measures_batch(r.norm)]
    if not norms or observed.readings.batches < FEW_BATCHES:
        return
    evidence, harm = _by_labels(observed)
    if not evidence:
        evidence, harm = _by_means(norms)
    if evidence:
        yield Finding(
            "warning",
            "sorted batches",
            "(batches)",
            "batches differ from each other by more than chance, as if the data were sorted: the statistics of a batch "
            "reveal its class",
            evidence,
            "shuffle the data: DataLoader(..., shuffle=True)",
            harm=harm,
            layers=[r.name for r in norms],
        )


def _by_labels(observed: Observations) -> tuple[str, float]:
    """Whether labels within a batch are alike: how often two samples of a batch share theirs; with the harm."""
    labels = [found for batch in observed.batches if (found := labels_of(batch)) is not None and len(found) > 1]
    if len(labels) < FEW_BATCHES or len(labels) != len(observed.batches):
        return "", 0.0
    everything = torch.cat(labels)
    classes = int(everything.max()) + 1
    if classes < 2 or classes > len(everything):
        return "", 0.0
    overall = _share_of_equal_pairs(everything)
    within = sum(_share_of_equal_pairs(found) for found in labels) / len(labels)
    if within > overall + 0.5 * (1 - overall):
        return (
            f"two samples of a batch share their label in {percent(within)} of cases, two of any batches in "
            f"{percent(overall)}"
        ), within
    return "", 0.0


def _share_of_equal_pairs(labels: Tensor) -> float:
    counts = labels.bincount().double()
    number = float(counts.sum())
    return float((counts * (counts - 1)).sum()) / max(number * (number - 1), 1.0)


def _by_means(norms: list[NormReading]) -> tuple[str, float]:
    """Variance of batch means over that expected of random samples, which is 1 on average; with the harm."""
    for reading in norms:
        batches = [batch for batch in reading.batches if batch.samples >= 8]
        if len(batches) < FEW_BATCHES:
            continue
        weights = torch.tensor([float(batch.samples) for batch in batches], dtype=torch.float64)[:, None]
        means = torch.stack([batch.mean for batch in batches])
        within = torch.stack([batch.var for batch in batches]).mean(0)
        center = (means * weights).sum(0) / weights.sum()
        between = (weights * (means - center).square()).sum(0) / (len(batches) - 1)
        usable = within > 1e-12 * within.max()
        ratio = (between / within)[usable]
        if not len(ratio):
            continue
        # Channels are correlated, so the median is judged like one channel: an F with (b − 1, many) degrees of freedom.
        usual = float(ratio.median())
        limit = 2.0 + 4.0 * NormalDist().inv_cdf(0.999) / math.sqrt(2 * (len(batches) - 1))
        if usual > limit:
            return (f"at {reading.name}, the variance of batch means is {usual:.2g} times that of random samples"), min(
                1.0, usual / (10 * limit)
            )
    return "", 0.0


def outliers(observed: Observations) -> Iterator[Finding]:
    """Positions that are outliers in most channels, and inflate σ of many.

    A channel that responds to one class has heavy tails too. Broken samples show in most channels at once.
    """
    if not observed.has_data:
        return
    for reading in observed.ran:
        if reading.axes != "batch" or reading.moments.number < 2 * FEW_SAMPLES:
            continue
        low, middle, high = reading.moments.quartiles()
        sigma, robust = reading.moments.var.sqrt(), (high - low) / 1.349  # equal for a Gaussian
        usable = robust > 1e-3 * sigma  # with many zeros, as after a ReLU, the quartiles coincide
        if not bool(usable.any()):
            continue
        far = (reading.moments.sample() - middle[:, None]).abs()[usable] > FAR * robust[usable, None]
        broken = far.double().mean(0) >= 0.5
        weight = torch.where(usable, sigma / torch.where(usable, robust, 1.0), 1.0)
        channels = (weight > HEAVY).nonzero().flatten().tolist()
        share = float(broken.double().mean())
        if not 0 < share < 0.25 or len(channels) < MANY * len(weight):
            continue
        norm = reading.norm
        is_robust = getattr(norm, "spread", None) == "robust" or getattr(norm, "guard", None) is not None
        damage = "they shift the mean and inflate the spread, and all other samples are squeezed together"
        worst = int(weight.argmax())
        yield Finding(
            "note" if is_robust else "warning",
            "outliers",
            reading.name,
            f"a few samples are outliers in most channels: {'this norm resists them' if is_robust else damage}",
            f"{100 * share:.2g} % of the values; {channel_fraction(len(channels), len(weight))} "
            f"({channel_list(channels, 3)}) have σ above {HEAVY:g} times that of the middle half; in channel {worst} "
            f"it is {float(weight[worst]):.2g} times",
            "geonorm.screen(model, batches) names the samples"
            + ("" if is_robust else "; geonorm.convert(model, 'guardbn') resists them"),
            channels,
            harm=0.0 if is_robust else min(1.0, float(weight.median()) / 10),
        )
