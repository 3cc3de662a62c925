"""The guard: samples far from all others are pulled onto a ball around the joint center before anything is measured."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ..ops.torch.guard import judge_samples
from ._arguments import check_floating, floating, weights
from ._pull import pull


class Guarded(NamedTuple):
    """A batch whose far samples were pulled in, and the factors and distances of its samples.

    Attributes:
        output: x with the far samples on the ball; all others bit for bit unchanged.
        factor: per sample: 1 inside the ball, R/d outside, NaN for a sample with a value that is not finite.
        distance: per sample; Inf for one that is not finite.
        radius: R; Inf where samples cannot be judged.
        center: the joint center, per channel.
        scale: the unit of distance, per channel.
    """

    output: Tensor
    factor: Tensor
    distance: Tensor
    radius: Tensor
    center: Tensor
    scale: Tensor


def guard(
    x: Tensor, k: float = 3.0, sample_dim: int = 0, channel_dim: int = 1, *, mask: Tensor | None = None
) -> Guarded:
    """Pull the samples that lie far from all others onto a ball around their joint center.

        d² = mean over channels of [v + (m − y)²] / s²        R = k · median d        f = min(1, R/d)
        output = y + f·(x − y)

    m and v are the mean and variance of a sample in a channel, y is the joint center of all samples, and s² the median
    of v + (m − y)² in the channel, or of those above 0 where most samples are the same. A sample inside the ball is
    bit for bit unchanged. The effect of one sample on a mean, a variance or a gradient is then bounded, as long as
    fewer than half of the samples are far out.

    y, s, R and f are constants in backward, like the factor of gradient clipping: the gradient of x is f times that of
    the output. A sample with NaN or Inf comes out as NaN, gets no gradient, and does not count in y, s and R. With
    fewer than four finite samples, or where more than half of them are the same, samples cannot be judged and none is
    pulled. In a batch of more than 256 samples, y and s come from 256 of them, evenly spaced.

    Args:
        x: a batch of samples, of a floating-point dtype.
        k: the radius in median distances; at least 1.
        sample_dim: the dimension of samples.
        channel_dim: the dimension of channels. The others are positions.
        mask: non-negative weights or a mask that broadcasts to ``x``: where it is 0 a value is not measured.

    Shape:
        - x: any with at least two dimensions; output: the same; factor and distance: ``(samples,)``; radius: a number;
          center and scale: ``(channels,)``.

    Examples:
        >>> import torch
        >>> from geonorm.functional import guard
        >>> x = torch.randn(16, 3, 4, 4)
        >>> x[5] *= 100
        >>> found = guard(x)
        >>> (found.factor < 1).nonzero().flatten()
        tensor([5])
        >>> bool((found.output[:5] == x[:5]).all())
        True
    """
    check_k(k, none_ok=False)
    samples, channels = sample_and_channel(x, sample_dim, channel_dim)
    laid_out = x.movedim((samples, channels), (0, 1))
    full_mask = None
    if mask is not None:
        full_mask = weights(mask, floating(x), "mask")
        assert full_mask is not None
        full_mask = full_mask.movedim((samples, channels), (0, 1))
    verdict = judge_samples(laid_out, float(k), full_mask)
    output = pull(laid_out, verdict.factor, verdict.center).movedim((0, 1), (samples, channels))
    return Guarded(output, verdict.factor, verdict.distance, verdict.radius, verdict.center, verdict.scale)


def check_k(k: float | None, name: str = "k", none_ok: bool = True) -> None:
    """Raise unless k is a radius of at least one median distance, or None for no guard."""
    if k is None and none_ok:
        return
    if isinstance(k, bool) or not isinstance(k, (int, float)):
        raise TypeError(f"expected {name} to be a number (got {type(k).__name__}); 3.0 is a common choice")
    if not 1 <= k < math.inf:
        raise ValueError(
            f"expected 1 <= {name} < inf, a radius in median distances (got {k}); 3.0 is a common choice, and below 1 "
            "more than half of all samples would be pulled"
        )


def sample_and_channel(x: Tensor, sample_dim: int, channel_dim: int) -> tuple[int, int]:
    """The two dimensions, checked and non-negative."""
    check_floating(x)
    rank = x.dim()
    if rank < 2:
        raise ValueError(f"expected x with a dimension of samples and one of channels (got shape {tuple(x.shape)})")
    for name, dim in (("sample_dim", sample_dim), ("channel_dim", channel_dim)):
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"expected {name} to be an int (got {type(dim).__name__})")
        if not -rank <= dim < rank:
            raise IndexError(f"expected {name} in [{-rank}, {rank - 1}] for x with {rank} dimensions (got {dim})")
    if sample_dim % rank == channel_dim % rank:
        raise ValueError(f"expected sample_dim and channel_dim to differ (both are {sample_dim % rank})")
    if 0 in x.shape:
        raise ValueError(f"expected at least one value (got x of shape {tuple(x.shape)})")
    return sample_dim % rank, channel_dim % rank
