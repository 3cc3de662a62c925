"""Distributionally robust losses: the expected loss under the worst distribution near the data.

For per-sample losses ℓ_1..ℓ_B each function returns sup over q of Σ q_i ℓ_i and the q that attains it, which is also
the gradient:

    cvar            q_i ≤ 1/(αB): the mean of the worst fraction α
    chi_square      ½ Σ (B q_i − 1)²/B ≤ ½ (1/α − 1)²
    ..._doro        the same after the fraction ε of largest losses, the suspected outliers, is dropped

**Exact.** Fractions need not be whole samples: the one on the boundary counts in part. With c² = 1 + (1/α − 1)² the χ²
supremum is inf over η of c·√E(ℓ − η)₊² + η. Where the samples above η have mass m, mean μ and variance v,
η = μ − √(v/(c²m − 1)) and the value is μ + √(v(c²m − 1)): one sort finds the η that agrees with its own samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

TRIMS = ("exact", "floor")


class RobustLoss(NamedTuple):
    """A robust loss of a batch.

    Attributes:
        loss: a scalar to call ``backward`` on.
        weights: how much each sample counts; they add up to 1, and are the gradient of the loss by the samples' losses.
            If the loss of any sample is NaN, so are the weights, the loss and its gradient.
    """

    loss: Tensor
    weights: Tensor


def erm(losses: Tensor) -> RobustLoss:
    """The plain mean: empirical risk minimization.

    Args:
        losses: per-sample losses, any shape.

    Examples:
        >>> import torch
        >>> from geonorm.robust import erm
        >>> erm(torch.tensor([1.0, 2.0, 6.0])).loss
        tensor(3.)
    """
    flat = _flat(losses)
    return RobustLoss(flat.mean(), torch.full_like(flat.detach(), 1 / flat.numel()).view_as(losses))


def cvar(losses: Tensor, alpha: float) -> RobustLoss:
    """The mean of the worst fraction of the samples: conditional value at risk.

        sup Σ q_i ℓ_i  with  0 ≤ q_i ≤ 1/(αB),  Σ q_i = 1

    Args:
        losses: per-sample losses, any shape.
        alpha: the fraction, in (0, 1]; 1 gives the mean. Less than one sample gives the largest loss.

    Examples:
        >>> import torch
        >>> from geonorm.robust import cvar
        >>> loss, weights = cvar(torch.tensor([1.0, 2.0, 6.0, 3.0]), alpha=0.5)
        >>> loss, weights
        (tensor(4.5000), tensor([0.0000, 0.0000, 0.5000, 0.5000]))
    """
    return cvar_doro(losses, alpha, 0.0)


def chi_square(losses: Tensor, alpha: float) -> RobustLoss:
    """The worst expected loss in a χ² ball around the samples.

        sup Σ q_i ℓ_i  with  ½ Σ (B q_i − 1)²/B ≤ ½ (1/α − 1)²,  q ≥ 0,  Σ q_i = 1

    Args:
        losses: per-sample losses, any shape.
        alpha: in (0, 1]; 1 gives the mean, and the ball grows as α falls. For α ≤ ½ the ball contains all q of CVaR
            with the same α.

    Examples:
        >>> import torch
        >>> from geonorm.robust import chi_square
        >>> round(chi_square(torch.tensor([1.0, 2.0, 6.0, 3.0]), alpha=0.5).loss.item(), 3)
        4.869
    """
    return chi_square_doro(losses, alpha, 0.0)


def cvar_doro(losses: Tensor, alpha: float, eps: float, trim: str = "exact") -> RobustLoss:
    """CVaR of the rest after the largest losses are dropped as outliers.

    Args:
        losses: per-sample losses, any shape.
        alpha: the fraction of the rest, in (0, 1].
        eps: the fraction dropped first, in [0, 1).
        trim: ``"exact"`` drops eps·B samples, the last of them in part; ``"floor"`` drops int(eps·B).

    Examples:
        >>> import torch
        >>> from geonorm.robust import cvar_doro
        >>> cvar_doro(torch.tensor([1.0, 2.0, 99.0, 3.0]), alpha=1 / 3, eps=0.25).loss
        tensor(3.)
    """
    kept = _kept(losses, alpha, eps, trim)
    end = max(alpha * kept.number, 1e-9)  # however small the fraction, the largest loss counts
    fraction = torch.clamp(kept.before + kept.mass, max=end) - torch.clamp(kept.before, max=end)
    weights = fraction / fraction.sum()
    # A loss without weight must have no effect, even if it is infinite.
    loss = torch.where(fraction > 0, weights * kept.worst, 0.0).sum()
    return kept.result(loss, weights)


def chi_square_doro(losses: Tensor, alpha: float, eps: float, trim: str = "exact") -> RobustLoss:
    """The χ² loss of the rest after the largest losses are dropped as outliers.

    Args:
        losses: per-sample losses, any shape.
        alpha: as in ``chi_square``.
        eps: the fraction dropped first, in [0, 1).
        trim: as in ``cvar_doro``.

    Examples:
        >>> import torch
        >>> from geonorm.robust import chi_square_doro
        >>> chi_square_doro(torch.tensor([1.0, 2.0, 99.0, 3.0]), alpha=0.5, eps=0.25).loss < 4
        tensor(True)
    """
    kept = _kept(losses, alpha, eps, trim)
    mass = kept.mass / kept.number
    radius = min(1 / alpha - 1, 1e9) ** 2  # c² − 1; larger values give the largest loss too
    first = kept.worst[0].detach()
    # Distances from the largest loss in units of the greatest: differences keep their digits, squares do not overflow.
    gap = (first - kept.worst).nan_to_num(nan=0.0, posinf=torch.finfo(first.dtype).max)
    unit = torch.where(gap[-1] > 0, gap[-1], 1.0).detach()
    gap = gap / unit
    inside = (gap < _level(gap.detach(), mass, kept.before / kept.number, radius)) | (gap == 0)
    above, below = torch.where(inside, mass, 0.0), torch.where(inside, 0.0, mass).sum()
    total = above.sum()
    mean = (above * gap).sum() / total
    variance = (above * (gap - mean).square()).sum() / total
    gain = _gain(total, below, radius)
    tilted = (variance.detach() > 0) & (gain > 0)
    gain, variance = torch.where(tilted, gain, 0.0), torch.where(tilted, variance, 1.0)  # a root has no slope at 0
    loss = torch.where(inside, mass * kept.worst, 0.0).sum() / total + unit * (variance * gain).sqrt()
    weights = above / total * (1 + (mean - gap) * (gain / variance).sqrt()).clamp_min(0.0)
    return kept.result(loss, weights.detach())


def _level(gap: Tensor, mass: Tensor, before: Tensor, radius: float) -> Tensor:
    """How far η is below the largest loss: each number of samples implies an η, and one of them fits its samples.

    ``gap``: distances from the largest loss, rising; ``mass``: weights, which add up to 1; ``before``: the total mass
    of larger losses.
    """
    total = before + mass
    mean = (mass * gap).cumsum(0) / total
    variance = ((mass * gap.square()).cumsum(0) / total - mean.square()).clamp_min(0.0)
    gain = _gain(total, total[-1] - total, radius)
    usable = gain > 0  # never for α = 1: the ball is a point, and every sample counts
    depth = mean + (variance / torch.where(usable, gain, 1.0)).sqrt()
    following = torch.cat([gap[1:], gap.new_full((1,), math.inf)])
    misfit = (depth - following).clamp_min(0.0) + (gap - depth).clamp_min(0.0)
    best = torch.where(usable, misfit, math.inf).argmin()
    return torch.where(usable.any(), depth.gather(0, best[None])[0], math.inf)


def _gain(above: Tensor, below: Tensor, radius: float) -> Tensor:
    """c²m − 1 from the masses above and below η, computed from the smaller one to keep its digits."""
    return torch.where(above < below, (1 + radius) * above - 1, radius - (1 + radius) * below)


def _flat(losses: Tensor) -> Tensor:
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        kind = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise TypeError(f"expected per-sample losses as a floating-point tensor (got {kind})")
    if not losses.numel():
        raise ValueError("expected at least one loss (got none); skip an empty batch")
    if losses.dim() == 0:
        raise ValueError("expected one loss per sample (got a single number); use reduction='none' in the loss")
    return losses.reshape(-1)


def _check(alpha: float, eps: float, trim: str) -> None:
    if not 0 < alpha <= 1:
        raise ValueError(f"expected alpha in (0, 1], the fraction of the worst samples (got {alpha})")
    if not 0 <= eps < 1:
        raise ValueError(f"expected eps in [0, 1), the fraction of suspected outliers (got {eps})")
    if trim not in TRIMS:
        raise ValueError(f"expected trim to be one of {TRIMS} (got {trim!r})")


class _Kept(NamedTuple):
    """The losses that remain after the largest are dropped.

    ``worst``: the losses in falling order; ``mass``: how much of each remains, the first perhaps in part; ``before``:
    the mass of those before it; ``number``: the total mass; ``order``: their original indices; ``given``: all losses in
    their original order.
    """

    worst: Tensor
    mass: Tensor
    before: Tensor
    number: float
    order: Tensor
    given: Tensor

    def result(self, loss: Tensor, weights: Tensor) -> RobustLoss:
        """The loss and the weights in the original order, in the precision of the losses given.

        If any loss is NaN, so are both. A NaN factor does this, so that the gradient is NaN too.
        """
        flat = self.given.reshape(-1)
        shown = torch.where(flat.detach().isnan().any(), math.nan, 1.0).to(loss.dtype)
        everywhere = torch.zeros_like(flat).scatter(0, self.order, weights.to(flat.dtype)) * shown.to(flat.dtype)
        return RobustLoss((loss * shown).to(flat.dtype), everywhere.view_as(self.given))


def _kept(losses: Tensor, alpha: float, eps: float, trim: str) -> _Kept:
    flat = _flat(losses)
    _check(alpha, eps, trim)
    size = flat.numel()
    # 0.29 · 100 is 28.999999999999996. Without round() a rounding error of the 29th outlier would remain, and outliers
    # are large.
    dropped = float(int(eps * size)) if trim == "floor" else round(eps * size, 9)
    whole = int(dropped)
    order = flat.detach().argsort(descending=True, stable=True)[whole:]
    # Half precision cannot represent the number of samples of a batch.
    worst = flat[order].to(torch.promote_types(flat.dtype, torch.float32))
    end = torch.arange(1, size - whole + 1, dtype=worst.dtype, device=flat.device) - (dropped - whole)
    before = (end - 1).clamp_min(0.0)
    return _Kept(worst, end - before, before, size - dropped, order, losses)
