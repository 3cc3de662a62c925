"""The guard: samples far from all others are pulled onto a ball around the joint center before anything is measured."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..distributed import Across, gather_rows
from ..ops import Axes, Verdict, can_look, judge
from ._arguments import check_floating, floating, weights
from ._rows import row_moments


class Guarded(NamedTuple):
    """A batch whose far samples were pulled in, and by what.

    Attributes:
        output: x with the far samples on the ball; all others as they were, bit for bit.
        factor: per sample: 1 inside of the ball, R/d outside, NaN for a sample with a value that is not finite.
        distance: per sample; Inf for one that is not finite.
        radius: R; Inf where nothing can be told.
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
    of v + (m − y)² in the channel, of those above 0 where most samples are the same. A sample inside of the ball stays
    as it is, bit for bit. What a sample can do to a mean, a variance or a gradient is then bounded, as long as fewer
    than half of the samples are far out.

    y, s, R and f are constants in backward, as the factor of gradient clipping is: the gradient of x is f times that
    of the output. A sample with NaN or Inf comes out as NaN, gets no gradient, and has no part in y, s and R. Among
    fewer than four finite samples, or where more than half of them are the same, nothing can be told and nothing is
    pulled. In a batch of more than 256 samples, y and s are those of 256 of them, evenly spaced.

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
    share = None
    if mask is not None:
        share = weights(mask, floating(x))
        assert share is not None
        share = share.movedim((samples, channels), (0, 1))
    verdict = judge_samples(laid_out, float(k), share)
    output = pull(laid_out, verdict.factor, verdict.center).movedim((0, 1), (samples, channels))
    return Guarded(output, verdict.factor, verdict.distance, verdict.radius, verdict.center, verdict.scale)


def check_k(k: float | None, name: str = "k", none_ok: bool = True) -> None:
    """A radius of at least one median distance; None for no guard."""
    if k is None and none_ok:
        return
    if isinstance(k, bool) or not isinstance(k, (int, float)):
        raise TypeError(f"expected {name} to be a number (got {type(k).__name__}); 3.0 is the usual radius")
    if not 1 <= k < math.inf:
        raise ValueError(
            f"expected 1 <= {name} < inf, a radius in median distances (got {k}); 3.0 is the usual one, and below 1 "
            "more than half of all samples would be pulled"
        )


def sample_and_channel(x: Tensor, sample_dim: int, channel_dim: int) -> tuple[int, int]:
    """The two dimensions, from 0."""
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


@torch.no_grad()
def judge_samples(x: Tensor, k: float, share: Tensor | None, groups: Axes | None = None) -> Verdict:
    """The verdict on the samples of x, (N, C, *), counted by ``share``; over all processes of joint groups.

    Distances and factors are those of the samples here.
    """
    mean, deviation, present = sample_moments(x.detach(), share)
    if not isinstance(groups, Across):
        return judge(mean, deviation, k, present)
    parts = [mean, deviation] if present is None else [mean, deviation, present.to(mean.dtype)]
    rows, here = gather_rows(groups.name, *parts, lengths=groups.lengths)
    verdict = judge(rows[0], rows[1], k, rows[2] > 0 if len(rows) > 2 else None)
    return verdict._replace(distance=verdict.distance[here], factor=verdict.factor[here])


def sample_moments(x: Tensor, share: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Mean and standard deviation of every sample in every channel, and where there is anything to measure."""
    if share is None:
        return *row_moments(x), None
    values = (
        torch.where(share > 0, floating(x), 0.0).flatten(2)
        if x.dim() > 2
        else torch.where(share > 0, x, 0.0)[..., None]
    )
    weight = (share.flatten(2) if x.dim() > 2 else share[..., None]).to(values.dtype)
    mass = weight.sum(2)
    per = torch.where(mass > 0, mass, 1.0)
    mean = (values * weight).sum(2) / per
    centred = torch.where(weight > 0, values - mean[..., None], 0.0)
    return mean, ((centred.square() * weight).sum(2) / per).sqrt(), mass > 0


def pull(x: Tensor, factor: Tensor, center: Tensor) -> Tensor:
    """x, (N, C, *), with every sample at its factor of the way from the center; bit for bit where that is 1."""
    if can_look(factor) and factor.device.type == "cpu" and bool((factor == 1).all()):
        return x.view_as(x)
    pulled: Tensor = _Pull.apply(x, factor, center)  # type: ignore[no-untyped-call]
    return pulled


class _Pull(torch.autograd.Function):
    """y + f·(x − y). The gradient is f times that of the output: y and f are constants. 0 where f is NaN."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: Tensor, center: Tensor) -> Tensor:
        f = factor.reshape(-1, *[1] * (x.dim() - 1))
        y = center.reshape(-1, *[1] * (x.dim() - 2))
        return torch.where(f == 1, x, (y + f * (x - y)).to(x.dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = ctx.saved_tensors
        f = factor.reshape(-1, *[1] * (grad.dim() - 1))
        return torch.where(f.isnan(), 0.0, grad * f.to(grad.dtype)), None, None
