"""The usual statistics of samples at one place of a network, and how far each sample is from them.

With m and σ the mean and standard deviation of sample i in channel c, every sample has three figures:

    distance    2·d/median d,  d² = mean over channels of [σ² + (m − y)²]/s²; or less, see below
    mean        median over channels of |m − y| in MADs
    spread      median over channels of |log σ − median log σ| in MADs

y is the median of m, and s² that of σ² + (m − y)². Medians and MADs are those of the samples themselves; channels in
which more than half of the samples are the same are ignored. The distance is the guard's. It detects one channel that
is far off. The other two detect what moves all channels alike, such as a sample that does not vary, which is near and
yet unusual. In one or two dimensions a distance of three medians is common, so the figure is at most d − median d over
1.4826 times the step from the lower quartile to the median.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

STATISTICS = ("distance", "mean", "spread")
_MAX_FOR_REFERENCE = 4096  # samples; more would not improve the medians
_MAD = 1.4826  # standard deviation over MAD of normal values
_LEAST = 0.02  # smaller deviations, relative to the usual spread, are never reported, however similar the samples are
_FLAT = 1e-6  # a channel of a sample with a smaller spread, relative to the usual one, does not vary
_FAR_MADS = 6.0
_MAX_IMAGE_CHANNELS = 4  # with up to this many channels, one that does not vary is a fault
_WINDOW = 1.5
_MIN_PEAK_TO_VALLEY = 3.0  # scores above a valley, at least this multiple of those in it
_BLOCK = 1 << 22  # numbers per block


class SampleReference:
    """The reference at one place, from moments ``[samples, channels]``; samples that are not finite are ignored.

    Attributes:
        usable: whether there are four finite samples, more than half of which differ.
    """

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        finite = (mean.isfinite() & deviation.isfinite()).all(1)
        mean, deviation = (_subsample(part[finite]).double() for part in (mean, deviation))
        self.usable = len(mean) >= 4
        if not self.usable:
            return
        self._spread = deviation.median(0).values
        self._flat = _FLAT * self._spread
        self._mean = mean.median(0).values
        wide = _MAD * (mean - self._mean).abs().median(0).values
        # If all samples are the same up to rounding, their MAD is not a useful unit.
        self._mean_unit = torch.maximum(wide, torch.maximum(_LEAST * self._spread, 1e-6 * self._mean.abs()))
        self._columns = (wide > 1e-6 * self._mean.abs()) | (self._spread > 0)
        self._varies = self._spread > 0
        logs = self._log(deviation)
        self._logs = logs.median(0).values
        self._logs_unit = (_MAD * (logs - self._logs).abs().median(0).values).clamp_min(_LEAST)
        rows = mean.std(1, correction=0)
        self._row_spread = float(rows.median())
        self._row_unit = max(_LEAST, _MAD * float((rows / self._row_spread).clamp_min(_FLAT).log().abs().median()))
        squares = self._squares(mean, deviation)
        self._scale = squares.median(0).values
        distance = (squares / self._scale).mean(1).sqrt()
        self._radius = float(distance.median())
        self.usable = bool(self._columns.any()) and 0 < self._radius < math.inf
        self._inner = self._radius - float(distance.kthvalue(1 + len(distance) // 4).values)

    def figures(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """``[samples, 3]``, as in ``STATISTICS``; Inf for samples that are not finite."""
        rows = max(1, _BLOCK // mean.shape[1])
        parts = zip(mean.split(rows), deviation.split(rows), strict=True)
        return torch.cat([self._figures(m.double(), s.double()) for m, s in parts])

    def deviations(self, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        """Signed deviations of the means and of the logarithms of the standard deviations, in MADs."""
        return (mean - self._mean) / self._mean_unit, (self._log(deviation) - self._logs) / self._logs_unit

    def farthest(self, mean: Tensor) -> Tensor:
        """``[samples, 4]``: the channel whose mean is farthest off, that mean, the usual one, and how many are far."""
        z = ((mean.double() - self._mean).abs() / self._mean_unit)[:, self._columns].nan_to_num(math.inf)
        channel = self._columns.nonzero().flatten()[z.argmax(1)]
        own = mean.double().gather(1, channel[:, None])[:, 0]
        return torch.stack([channel.double(), own, self._mean[channel], (z > _FAR_MADS).sum(1).double()], 1)

    def _figures(self, mean: Tensor, deviation: Tensor) -> Tensor:
        finite = (mean.isfinite() & deviation.isfinite()).all(1)
        z, logs = (part.abs() for part in self.deviations(mean, deviation))
        spread = torch.maximum(_middle(logs[:, self._varies]), self._flatness(mean, deviation, logs))
        distance = (self._squares(mean, deviation) / self._scale).mean(1).sqrt()
        # In few dimensions, or many correlated ones, distances vary widely: measure them in units of their variation.
        narrow = (distance - self._radius).clamp_min(0) / max(_MAD * self._inner, 1e-6 * self._radius)
        far = torch.minimum(2 * distance / self._radius, narrow)
        found = torch.stack([far, _middle(z[:, self._columns]), spread], 1)
        return torch.where(finite[:, None], found, math.inf).float()

    def _flatness(self, mean: Tensor, deviation: Tensor, logs: Tensor) -> Tensor:
        """How unusual it is that a channel of an image, or a whole row of a table, does not vary; 0 where they vary."""
        if self._varies.any():
            flat = (deviation <= self._flat) & self._varies & (mean.shape[1] <= _MAX_IMAGE_CHANNELS)
            return torch.where(flat, logs, 0.0).amax(1)
        flat = (mean.std(1, correction=0) <= _FLAT * self._row_spread) & (mean.shape[1] > _MAX_IMAGE_CHANNELS)
        return torch.where(flat, -math.log(_FLAT) / self._row_unit, 0.0)

    def _squares(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """σ² + (m − y)² in units of the channel, so that no square overflows."""
        unit = torch.maximum(self._mean_unit, self._spread)[self._columns]
        m, s = (mean - self._mean)[:, self._columns] / unit, deviation[:, self._columns] / unit
        return s.square() + m.square()

    def _log(self, deviation: Tensor) -> Tensor:
        return torch.maximum(deviation, self._flat).clamp_min(1e-300).log()


def _subsample(rows: Tensor) -> Tensor:
    """All rows, or evenly spaced ones if there are many."""
    if len(rows) <= _MAX_FOR_REFERENCE:
        return rows
    return rows[torch.arange(_MAX_FOR_REFERENCE) * len(rows) // _MAX_FOR_REFERENCE]


def roughness_score(rough: Tensor, sound: Tensor) -> Tensor:
    """How far the roughness of each sample is above that of the sound ones: noise, however small.

    Measured as log-odds in MADs. Independent values have a roughness of 1, where the log-odds are infinite: it counts
    as 0.999.
    """
    odds = rough.clamp(1e-6, 0.999).logit()
    usual = odds[sound].nanmedian()
    unit = _MAD * (odds[sound] - usual).abs().nanmedian()
    return ((odds - usual) / unit.clamp_min(_LEAST)).nan_to_num(0.0).clamp_min(0.0).float()


def _middle(values: Tensor) -> Tensor:
    return values.median(1).values if values.shape[1] else values.new_zeros(len(values))


def valley_threshold(scores: Tensor, cut: float) -> float:
    """The smallest threshold from ``cut`` on that lies in a valley of the scores, counted in windows of a factor 1.5.

    Broken samples are separate from the others: few scores lie just below the threshold, and more lie together above
    it. Where scores fall off slowly, as in a table with long tails, there is no such valley, and no score is above the
    threshold.
    """
    ordered = scores[scores.isfinite()].double().sort().values
    start = int((ordered <= cut).sum())
    if start == len(ordered):
        return cut
    # Thresholds to try: the cut itself, and just below every score above it.
    over = ordered[start:]
    tops = torch.cat([over.new_tensor([cut]), over])
    first = torch.cat([torch.tensor([start]), torch.searchsorted(ordered, over)])
    below = first - torch.searchsorted(ordered, tops / _WINDOW, right=True)
    together = torch.searchsorted(ordered, over * _WINDOW, right=True) - torch.searchsorted(ordered, over)
    fullest = together.flip(0).cummax(0).values.flip(0)
    is_valley = _MIN_PEAK_TO_VALLEY * below <= fullest[first - start]
    if not bool(is_valley.any()):
        return 1.001 * float(over[-1])
    chosen = int(first[int(is_valley.int().argmax())])
    return cut if chosen == start else float(ordered[chosen - 1] + ordered[chosen]) / 2
