"""The joint center of the samples of a batch: one point for all channels at once, with a bound on its error."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..ops.torch.guard import MIN_SCALE_RATIO, column_median, sample_moments, squared_scale
from ._arguments import floating, weights
from ._guard import sample_and_channel
from ._joint_solver import power_mean, solve

_EPS = torch.finfo(torch.float64).eps


class JointCenterInfo(NamedTuple):
    """A joint center with its certificate. All but the center is float64; distances are those of ``guard``.

    Attributes:
        center: the joint center per channel, as ``joint_center`` returns it.
        scale: the unit of distance per channel.
        distance: of every sample from the center; Inf for one that is not finite, 0 for one without values.
        bound: every minimizer lies within this distance, rounding included: √ mean over channels of (error/scale)².
        objective: the power mean of the distances, (Σ d^φ / N)^(1/φ).
        gap: the least possible objective is at most this much smaller.
        sweeps: int64; how many steps the solver took.
    """

    center: Tensor
    scale: Tensor
    distance: Tensor
    bound: Tensor
    objective: Tensor
    gap: Tensor
    sweeps: Tensor


def joint_center(
    x: Tensor, phi: float = 1.0, sample_dim: int = 0, channel_dim: int = 1, *, mask: Tensor | None = None
) -> Tensor:
    """The joint center of a batch: the point with the least sum of distances, to the power φ, to all samples.

        argmin over y of Σ d_i^φ        d_i² = mean over channels of [v_i + (m_i − y)²] / s²

    m and v are the mean and variance of a sample in a channel, s² is the median of v + (m − median m)² in the channel,
    and at least a millionth of that of the widest one. At φ=1 it is the geometric median of whole samples, at 2 the
    mean. ``center`` treats every channel separately; here a sample counts in all of its channels or in none.

    Computed in float64 to a certified error; ``joint_center_with_info`` returns the certificate. The result has no
    gradient. Samples with NaN or Inf are ignored, and so are those without any value under a mask. Where every s would
    be 0, because most samples are the same, s² is the mean of those squares instead of the median.

    Args:
        x: a batch of samples, of a floating-point dtype.
        phi: exponent in [1, ∞).
        sample_dim: the dimension of samples.
        channel_dim: the dimension of channels. The others are positions.
        mask: non-negative weights or a mask that broadcasts to ``x``: where it is 0 a value is not measured. Channels
            that a sample has no values in are left out of its distance.

    Shape:
        - x: any with at least two dimensions; output: ``(channels,)``, in the dtype of x, float32 for half precision.
          NaN for a channel without values.

    Examples:
        >>> import torch
        >>> from geonorm.functional import joint_center
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [1e6, 1e6]])
        >>> [[round(v, 2) for v in joint_center(x, phi).tolist()] for phi in (1.0, 2.0)]
        [[1.58, 1.58], [200000.8, 200000.8]]
    """
    return joint_center_with_info(x, phi, sample_dim, channel_dim, mask=mask).center


@torch.no_grad()
def joint_center_with_info(
    x: Tensor, phi: float = 1.0, sample_dim: int = 0, channel_dim: int = 1, *, mask: Tensor | None = None
) -> JointCenterInfo:
    """``joint_center``, with the bound on its error, the distances of the samples, and the unit of distance.

    The bound goes down to rounding wherever the minimizer is unique and well conditioned. At φ=1 it need not be unique,
    when all samples without spread of their own lie on a line. The bound is then the distance of the farthest sample,
    and ``gap`` tells how good the center is.

    Args:
        x, phi, sample_dim, channel_dim, mask: as in ``joint_center``.

    Shape:
        - center and scale: ``(channels,)``; distance: ``(samples,)``; the others: numbers.

    Examples:
        >>> import torch
        >>> from geonorm.functional import joint_center_with_info
        >>> info = joint_center_with_info(torch.randn(64, 8, 5, 5))
        >>> bool(info.bound < 1e-6), bool(info.gap < 1e-6), int(info.sweeps) < 10
        (True, True, True)
    """
    samples, channels = sample_and_channel(x, sample_dim, channel_dim)
    power = _power(phi)
    values = x.detach().double().movedim((samples, channels), (0, 1))
    full_mask = None if mask is None else weights(mask, values.movedim((0, 1), (samples, channels)), "mask")
    full_mask = None if full_mask is None else full_mask.movedim((samples, channels), (0, 1))
    offset = values.new_zeros(values.shape[1])
    if values.dim() > 2:  # means over positions would lose digits to a large offset
        mean, _, present = sample_moments(values, full_mask)
        known = mean.isfinite() if present is None else mean.isfinite() | ~present
        counted = known.all(1, keepdim=True) if present is None else known.all(1, keepdim=True) & present
        offset = column_median(torch.where(counted, mean, math.nan))
        values = values - offset.reshape(-1, *[1] * (values.dim() - 2))
    mean, deviation, present = sample_moments(values, full_mask)
    present = torch.ones_like(mean, dtype=torch.bool) if present is None else present
    broken = (present & ~(mean.isfinite() & deviation.isfinite())).any(1)
    usable = present.any(1) & ~broken
    present = present & usable[:, None]
    m, v = torch.where(present, mean, math.nan), torch.where(present, deviation.square(), math.nan)
    start = column_median(m)
    squares = squared_scale(m, v, start)
    if not bool(squares.max() > 0):
        means = (v + (m - start).square()).nanmean(0).nan_to_num(nan=0.0)
        squares = torch.maximum(means, MIN_SCALE_RATIO * means.max())
    scale = squares.sqrt()
    unit = torch.where((scale > 0) & scale.isfinite(), scale, 1.0) * math.sqrt(m.shape[1])
    positions = values[0, 0].numel()
    found = solve(m[usable], v[usable], present[usable], start, unit, positions, power)

    here = start + found.u * unit
    result = torch.where(present.any(0), offset + here, math.nan).to(floating(x).dtype)
    about = result.double() - offset
    exact = (found.u == 0) & (about == here) & (result.double() - here == offset)
    rounding = torch.where(exact, 0.0, 4 * _EPS * (start.abs() + here.abs())) + (about - here).abs()
    moved = torch.where(present.any(0), rounding / unit, 0.0).square().sum().sqrt()
    counts = present.sum(1).clamp_min(1)
    parts = torch.where(present, (v + (m - about).square()) / (unit.square() / m.shape[1]), 0.0)
    distance = torch.where(broken, math.inf, (parts.sum(1) / counts).sqrt())
    if not bool(usable.any()):
        nothing = scale.new_full((), math.nan)
        return JointCenterInfo(result, scale, distance, nothing, nothing, nothing, torch.tensor(0))
    objective = power_mean(distance[usable], power)
    gap = found.gap + math.sqrt(m.shape[1] / int(counts.min())) * moved  # distances change at most this much
    return JointCenterInfo(result, scale, distance, found.bound + moved, objective, gap, torch.tensor(found.sweeps))


def _power(phi: float) -> float:
    if isinstance(phi, bool) or not isinstance(phi, (int, float)):
        raise TypeError(f"expected phi to be a number (got {type(phi).__name__}); 1.0 is the geometric median")
    if not 1 <= phi < math.inf:
        raise ValueError(
            f"expected 1 <= phi < inf (got {phi}): below 1 the sum of distances to the power phi is not convex; use "
            "phi=1.0 for the geometric median of the samples, 2.0 for their mean"
        )
    return float(phi)
