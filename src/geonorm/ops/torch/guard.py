"""Which samples of a batch lie too far out: from each sample's moments per channel to one factor per sample.

With m and v the mean and variance of sample i in channel c, a center y and scales s, the distance of a whole sample is

    d_i² = (1/C) Σ_c [ v_ic + (m_ic − y_c)² ] / s_c²

y is the joint center (the geometric median of the samples), approximated by two Weiszfeld steps from the median of each
channel, which brings it to within a few percent of a distance. s_c² is the median of v_ic + (m_ic − y_c)²; where most
samples are the same, the median of those above 0. The radius is R = k·median d, and a sample outside of it gets the
factor R/d. Nothing here has a gradient: the factors are constants, as in gradient clipping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import can_read_values
from ..grouping import Axes
from ..precision import computing_dtype, wide
from ..problem import Inputs

MIN_SAMPLES = 4  # fewer samples are never pulled
MAX_SAMPLES_FOR_CENTER = 256  # center and scales of a larger batch come from every n-th sample
WEISZFELD_STEPS = 2
MIN_SCALE_RATIO = (
    1e-6  # least squared scale relative to the largest, so that a dead channel does not dominate distances
)
SCALE_ROUNDINGS = (
    8.0  # a scale within so many roundings of the center is noise: moments of equal samples differ as much
)
MIN_DISTANCE = 1e-6  # smaller distances count as this in the weights of the center
_BLOCK = 1 << 18  # elements per block
MIN_MEDIAN_DISTANCE = 1e-4  # up to this most samples are the same, and no sample is pulled


class Verdict(NamedTuple):
    """Center and scale per channel; distance and factor per sample; the radius, all in one computing dtype.

    A factor is 1 inside of the ball, R/d outside, and NaN for a sample with a value that is not finite, whose distance
    is Inf. The radius is Inf where no sample can be judged.
    """

    center: Tensor
    scale: Tensor
    distance: Tensor
    radius: Tensor
    factor: Tensor

    def to_numbers(self) -> Tensor:
        """The flat layout that ``problem`` describes: factors, distances, center, scale, radius."""
        return torch.cat([self.factor, self.distance, self.center, self.scale, self.radius.reshape(1)])

    @staticmethod
    def from_numbers(numbers: Tensor, samples: int, channels: int) -> Verdict:
        factor, distance, center, scale, radius = numbers.split([samples, samples, channels, channels, 1])
        return Verdict(center, scale, distance, radius.reshape(()), factor)


class GuardedMoments(NamedTuple):
    """Moments after far samples were pulled in: mean and biased variance per channel, and how many samples count."""

    verdict: Verdict
    mean: Tensor
    var: Tensor
    samples: Tensor  # float64, a number


def judge_moments(mean: Tensor, deviation: Tensor, k: float, present: Tensor | None = None) -> Verdict:
    """The verdict on the samples of a batch from their moments per channel, ``[samples, channels]``.

    Never reads values in Python. ``present``: which channels a sample has values in; one without any is not pulled.
    """
    finite = mean.isfinite()
    counted = finite if present is None else present
    broken = (~finite).any(1) if present is None else (~finite & present).any(1)
    usable = ~broken & counted.any(1)
    counted = counted & usable[:, None]
    m, v = torch.where(counted, mean, math.nan), deviation.square()
    y = column_median(_subsample(m))
    square = squared_scale(_subsample(m), _subsample(v), y, SCALE_ROUNDINGS * torch.finfo(mean.dtype).eps)
    # From here in float64, where the square of any float32 is finite. A value still not finite is infinitely far away.
    m, v, y, square = wide(m), wide(deviation).square(), wide(y), wide(square)
    v = torch.where(counted & ~v.isfinite(), math.inf, v)
    inverse = torch.where(square > 0, 1 / square, 0.0)

    def distances(m: Tensor, v: Tensor) -> Tensor:
        squared = (v + (m - y).square()) * inverse
        return (squared.mean(1) if present is None else squared.nanmean(1)).sqrt()

    some_m, some_v, some = _subsample(m), _subsample(v), wide(_subsample(counted))
    present_m = torch.where(some_m.isnan(), 0.0, some_m)
    for _ in range(WEISZFELD_STEPS):
        weight = distances(some_m, some_v).clamp_min(MIN_DISTANCE).reciprocal()
        weight = torch.where(weight.isnan(), 0.0, weight)
        total = weight @ some
        y = (weight @ present_m) / torch.where(total > 0, total, 1.0)
    d = distances(m, v)
    middle = torch.where(usable, d, math.nan).nanmedian()
    radius = torch.where((usable.sum() >= MIN_SAMPLES) & (middle > MIN_MEDIAN_DISTANCE), k * middle, math.inf)
    factor = torch.where(usable & (d > radius), radius / d, 1.0)
    factor = torch.where(broken, math.nan, factor)
    d = torch.where(broken, math.inf, torch.where(usable, d, 0.0))
    return Verdict(*[value.to(mean.dtype) for value in (y, square.sqrt(), d, radius, factor)])


def _subsample(values: Tensor) -> Tensor:
    """All rows, or every n-th if there are many."""
    if len(values) <= MAX_SAMPLES_FOR_CENTER:
        return values
    return values[torch.arange(MAX_SAMPLES_FOR_CENTER, device=values.device) * len(values) // MAX_SAMPLES_FOR_CENTER]


def column_median(m: Tensor) -> Tensor:
    """The median of every column, NaN left out; halfway where two values share the middle. 0 for a column of NaN."""
    middle = 0.5 * (m.nanmedian(0).values - (-m).nanmedian(0).values)
    return torch.where(middle.isnan(), 0.0, middle)


def squared_scale(m: Tensor, v: Tensor, y: Tensor, grain: float = 0.0) -> Tensor:
    """The median of the squared distance in each channel, and at least a small fraction of the largest such median.

    Where most samples are the same up to rounding (``grain``, relative to the center) it is the median of the others: a
    rectified channel is 0 in most samples, which must not make the rest look far away.
    """
    squares = v + (m - y).square()
    least = (grain * y).square()
    median = squares.nanmedian(0).values
    sparse = ~(median > least)
    if not can_read_values(sparse) or sparse.device.type != "cpu" or bool(sparse.any()):
        median = torch.where(sparse, torch.where(squares > least, squares, math.nan).nanmedian(0).values, median)
    median = torch.where(median.isnan(), 0.0, median)
    return torch.maximum(median, MIN_SCALE_RATIO * median.max())


MomentsOfGuarded = Callable[[Tensor, Tensor, float], GuardedMoments]


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments:
    """The moments of a batch after far samples were pulled in."""
    verdict = judge_moments(mean, deviation, k)
    return GuardedMoments(verdict, *combine_moments(mean, deviation, verdict.center, verdict.factor))


def combine_moments(mean: Tensor, deviation: Tensor, center: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of all samples after the pull, from those of each sample; and how many samples count."""
    f, y = wide(factor)[:, None], wide(center)
    usable = ~f.isnan()
    m = wide(mean)
    m = torch.where(usable, torch.where(f == 1, m, y + f * (m - y)), 0.0)
    v = torch.where(usable & (f > 0), (f * wide(deviation)).square(), 0.0)
    samples = wide(usable).sum()
    count = torch.where(samples > 0, samples, math.nan)
    total = m.sum(0) / count
    var = (torch.where(usable, (m - total).square(), 0.0) + v).sum(0) / count
    return total.to(mean.dtype), var.to(mean.dtype), samples


@torch.no_grad()
def judge_samples(x: Tensor, k: float, weight: Tensor | None, groups: Axes | None = None) -> Verdict:
    """The verdict on the samples of x, (N, C, *), weighted by ``weight``; over all processes if groups are joint.

    Distances and factors are returned for the samples of this process.
    """
    mean, deviation, present = sample_moments(x.detach(), weight)
    if groups is None or not groups.joint:
        return judge_moments(mean, deviation, k, present)
    parts = [mean, deviation] if present is None else [mean, deviation, present.to(mean.dtype)]
    rows, here = groups.gather_rows(*parts)
    verdict = judge_moments(rows[0], rows[1], k, rows[2] > 0 if len(rows) > 2 else None)
    return verdict._replace(distance=verdict.distance[here], factor=verdict.factor[here])


def sample_moments(x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Mean and standard deviation of every sample in every channel, and a mask of where there are values."""
    if weight is None:
        return *row_moments(x), None
    values = torch.where(weight > 0, x.to(computing_dtype(x.dtype)), 0.0)
    values, weight = (value.flatten(2) if x.dim() > 2 else value[..., None] for value in (values, weight))
    weight = weight.to(values.dtype)
    mass = weight.sum(2)
    per = torch.where(mass > 0, mass, 1.0)
    mean = (values * weight).sum(2) / per
    centred = torch.where(weight > 0, values - mean[..., None], 0.0)
    return mean, ((centred.square() * weight).sum(2) / per).sqrt(), mass > 0


def row_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every sample in every channel of x, (N, C, *), in the computing dtype."""
    values = x.to(computing_dtype(x.dtype))
    if values.dim() == 2:
        return values, torch.zeros_like(values)
    dims = tuple(range(2, x.dim()))
    if not can_read_values(x):
        var, mean = torch.var_mean(values, dims, correction=0)
        return mean, var.sqrt()
    mean = values.mean(dims)
    count = math.prod(x.shape[2:])
    step = max(1, _BLOCK * len(x) // max(1, x.numel()))
    parts = [
        torch.linalg.vector_norm(part - about.reshape(*about.shape, *[1] * len(dims)), dim=dims)
        for part, about in zip(values.split(step), mean.split(step), strict=True)
    ]
    deviation = torch.cat(parts) / math.sqrt(count)
    fine = mean.isfinite() & deviation.isfinite()
    if not bool(fine.all()):  # sums overflowed float32, or the values themselves are not finite
        rows = (~fine).any(1).nonzero().flatten()
        var, about = torch.var_mean(wide(values[rows]), dims, correction=0)
        mean = mean.index_copy(0, rows, about.to(mean.dtype))
        deviation = deviation.index_copy(0, rows, var.sqrt().to(mean.dtype))
    return mean, deviation


def pull(x: Tensor, factor: Tensor, center: Tensor) -> Tensor:
    """x, (N, C, *), with every sample's offset from the center scaled by its factor; unchanged where that is 1."""
    f = factor.reshape(-1, *[1] * (x.dim() - 1))
    y = center.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(f == 1, x, (y + f * (x - y)).to(x.dtype))


def pulled_inputs(
    of: Inputs, factor: Tensor, center: Tensor, joint: bool, by: Callable[[Tensor, Tensor, Tensor], Tensor] = pull
) -> Inputs:
    """The inputs after the guard. Samples that are not finite get weight 0."""
    x, weight = by(of.x, factor, center), of.weight
    if joint or not can_read_values(factor) or bool(factor.isnan().any()):
        finite = ~factor.isnan().reshape(-1, *[1] * (x.dim() - 1))
        weight = finite.to(center.dtype).expand(x.shape) if weight is None else torch.where(finite, weight, 0.0)
        x = torch.where(finite, x, 0.0)
    return of._replace(x=x, weight=weight)


@torch.no_grad()
def count_guarded(counts: Tensor, factor: Tensor) -> None:
    """Add a batch to the counts of a layer: batches, batches with a pull, samples pulled, samples not finite.

    Does nothing under a torch.func transform, which forbids changing tensors from outside of it.
    """
    if torch._C._are_functorch_transforms_active():
        return
    pulled, broken = (factor < 1).sum(), factor.isnan().sum()
    counts.add_(torch.stack([torch.ones_like(pulled), (pulled > 0).long(), pulled, broken]))
