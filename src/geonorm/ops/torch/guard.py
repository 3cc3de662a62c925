"""Which samples of a batch lie too far out: from each sample's moments per channel to one factor per sample.

With m and v the mean and variance of sample i in channel c, a center y and scales s, the distance of a whole sample is

    d_i² = (1/C) Σ_c [ v_ic + (m_ic − y_c)² ] / s_c²

y is the joint center (the geometric median of the samples), approached by two Weiszfeld steps from the median of each
channel, which brings it to within a few percent of a distance. s_c² is the median of v_ic + (m_ic − y_c)², of those
above 0 where most samples are the same. The radius is R = k·median d, and a sample outside of it gets the factor R/d.
Nothing here has a gradient: factors are constants, as that of gradient clipping.
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

FEWEST = 4  # samples; among fewer nothing can be told
MOST_FOR_CENTER = 256  # center and scales of a larger batch are those of every n-th sample
STEPS = 2
DEAD = (
    1e-6  # channels whose squared scale is below this fraction of the largest have no say: a dead one must not decide
)
GRAIN = 8.0  # a scale of so many roundings of the center is none: moments of equal samples may differ by that
NEAREST = 1e-6  # smaller distances count as this in the weights of the center
_BLOCK = 1 << 18  # elements that are worked on at a time
SAME = 1e-4  # a median distance up to this means that most samples are the same: nothing can be told


class Verdict(NamedTuple):
    """Center and scale per channel; distance and factor per sample; the radius, all in one computing dtype.

    A factor is 1 inside of the ball, R/d outside, and NaN for a sample with a value that is not finite, whose distance
    is Inf. Where nothing can be told the radius is Inf.
    """

    center: Tensor
    scale: Tensor
    distance: Tensor
    radius: Tensor
    factor: Tensor

    def to_numbers(self) -> Tensor:
        """As ``problem`` has it: factors, distances, center, scale, radius."""
        return torch.cat([self.factor, self.distance, self.center, self.scale, self.radius.reshape(1)])

    @staticmethod
    def from_numbers(numbers: Tensor, samples: int, channels: int) -> Verdict:
        factor, distance, center, scale, radius = numbers.split([samples, samples, channels, channels, 1])
        return Verdict(center, scale, distance, radius.reshape(()), factor)


class GuardedMoments(NamedTuple):
    """Of the samples after they were pulled: mean and biased variance per channel, and how many samples count."""

    verdict: Verdict
    mean: Tensor
    var: Tensor
    samples: Tensor  # float64, a number


def judge(mean: Tensor, deviation: Tensor, k: float, present: Tensor | None = None) -> Verdict:
    """The samples of a batch by their moments per channel, ``[samples, channels]``: mean and standard deviation.

    Without a look at the data. ``present``: which channels a sample has values in; one without any is left alone.
    """
    finite = mean.isfinite()
    counted = finite if present is None else present
    broken = (~finite).any(1) if present is None else (~finite & present).any(1)
    usable = ~broken & counted.any(1)
    counted = counted & usable[:, None]
    m, v = torch.where(counted, mean, math.nan), deviation.square()
    y = column_median(_some(m))
    square = squared_scale(_some(m), _some(v), y, GRAIN * torch.finfo(mean.dtype).eps)
    # From here in float64, where the square of any float32 is finite. What is not, is infinitely far away.
    m, v, y, square = wide(m), wide(deviation).square(), wide(y), wide(square)
    v = torch.where(counted & ~v.isfinite(), math.inf, v)
    inverse = torch.where(square > 0, 1 / square, 0.0)

    def distances(m: Tensor, v: Tensor) -> Tensor:
        squared = (v + (m - y).square()) * inverse
        return (squared.mean(1) if present is None else squared.nanmean(1)).sqrt()

    some_m, some_v, some = _some(m), _some(v), wide(_some(counted))
    present_m = torch.where(some_m.isnan(), 0.0, some_m)
    for _ in range(STEPS):
        weight = distances(some_m, some_v).clamp_min(NEAREST).reciprocal()
        weight = torch.where(weight.isnan(), 0.0, weight)
        total = weight @ some
        y = (weight @ present_m) / torch.where(total > 0, total, 1.0)
    d = distances(m, v)
    middle = torch.where(usable, d, math.nan).nanmedian()
    radius = torch.where((usable.sum() >= FEWEST) & (middle > SAME), k * middle, math.inf)
    factor = torch.where(usable & (d > radius), radius / d, 1.0)
    factor = torch.where(broken, math.nan, factor)
    d = torch.where(broken, math.inf, torch.where(usable, d, 0.0))
    return Verdict(*[value.to(mean.dtype) for value in (y, square.sqrt(), d, radius, factor)])


def _some(values: Tensor) -> Tensor:
    """All rows, or every n-th of many."""
    if len(values) <= MOST_FOR_CENTER:
        return values
    return values[torch.arange(MOST_FOR_CENTER, device=values.device) * len(values) // MOST_FOR_CENTER]


def column_median(m: Tensor) -> Tensor:
    """The median of every column, NaN left out; halfway where two values share the middle. 0 for a column of NaN."""
    middle = 0.5 * (m.nanmedian(0).values - (-m).nanmedian(0).values)
    return torch.where(middle.isnan(), 0.0, middle)


def squared_scale(m: Tensor, v: Tensor, y: Tensor, grain: float = 0.0) -> Tensor:
    """The median of the squared distance in each channel, and at least a small fraction of that of the widest one.

    Where most samples are the same, but for rounding (``grain``, relative to the center), the median of those that are
    not: a rectified channel is 0 in most samples, which makes the others neither far away nor near.
    """
    squares = v + (m - y).square()
    least = (grain * y).square()
    median = squares.nanmedian(0).values
    sparse = ~(median > least)
    if not can_read_values(sparse) or sparse.device.type != "cpu" or bool(sparse.any()):
        median = torch.where(sparse, torch.where(squares > least, squares, math.nan).nanmedian(0).values, median)
    median = torch.where(median.isnan(), 0.0, median)
    return torch.maximum(median, DEAD * median.max())


MomentsOfGuarded = Callable[[Tensor, Tensor, float], GuardedMoments]


def guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments:
    """The moments of a batch whose far samples were pulled."""
    verdict = judge(mean, deviation, k)
    return GuardedMoments(verdict, *combine(mean, deviation, verdict.center, verdict.factor))


def combine(mean: Tensor, deviation: Tensor, center: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of all samples after the pull, from those of each; and how many samples count."""
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
    """The verdict on the samples of x, (N, C, *), counted by ``weight``; over all processes of joint groups.

    Distances and factors are those of the samples here.
    """
    mean, deviation, present = sample_moments(x.detach(), weight)
    if groups is None or not groups.joint:
        return judge(mean, deviation, k, present)
    parts = [mean, deviation] if present is None else [mean, deviation, present.to(mean.dtype)]
    rows, here = groups.gather_rows(*parts)
    verdict = judge(rows[0], rows[1], k, rows[2] > 0 if len(rows) > 2 else None)
    return verdict._replace(distance=verdict.distance[here], factor=verdict.factor[here])


def sample_moments(x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Mean and standard deviation of every sample in every channel, and where there is anything to measure."""
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
    """Mean and standard deviation of every sample in every channel, of x as (N, C, *); in the computing dtype."""
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
    if not bool(fine.all()):  # sums too large for float32, if not the values themselves
        rows = (~fine).any(1).nonzero().flatten()
        var, about = torch.var_mean(wide(values[rows]), dims, correction=0)
        mean = mean.index_copy(0, rows, about.to(mean.dtype))
        deviation = deviation.index_copy(0, rows, var.sqrt().to(mean.dtype))
    return mean, deviation


def pull(x: Tensor, factor: Tensor, center: Tensor) -> Tensor:
    """x, (N, C, *), with every sample at its factor of the way from the center; bit for bit where that is 1."""
    f = factor.reshape(-1, *[1] * (x.dim() - 1))
    y = center.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(f == 1, x, (y + f * (x - y)).to(x.dtype))


def pulled_inputs(
    of: Inputs, factor: Tensor, center: Tensor, joint: bool, by: Callable[[Tensor, Tensor, Tensor], Tensor] = pull
) -> Inputs:
    """The inputs after the guard. Samples that are not finite weigh nothing."""
    x, weight = by(of.x, factor, center), of.weight
    if joint or not can_read_values(factor) or bool(factor.isnan().any()):
        finite = ~factor.isnan().reshape(-1, *[1] * (x.dim() - 1))
        weight = finite.to(center.dtype).expand(x.shape) if weight is None else torch.where(finite, weight, 0.0)
        x = torch.where(finite, x, 0.0)
    return of._replace(x=x, weight=weight)


@torch.no_grad()
def count_guarded(counts: Tensor, factor: Tensor) -> None:
    """Add a batch to the counts of a layer: batches, batches with a pull, samples pulled, samples not finite.

    Not under a torch.func transform, which forbids to change what it did not make.
    """
    if torch._C._are_functorch_transforms_active():
        return
    pulled, broken = (factor < 1).sum(), factor.isnan().sum()
    counts.add_(torch.stack([torch.ones_like(pulled), (pulled > 0).long(), pulled, broken]))
