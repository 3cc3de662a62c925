"""Distributionally robust losses: the expected loss under the worst distribution near the data.

Of per-sample losses ℓ_1..ℓ_B each function gives sup over q of Σ q_i ℓ_i and the q that attains it, which is also the
gradient:

    cvar            q_i ≤ 1/(αB): the mean of the worst share α
    chi_square      ½ Σ (B q_i − 1)²/B ≤ ½ (1/α − 1)²
    ..._doro        the same after the share ε of largest losses, the suspected outliers, is dropped

**Exact.** Shares need not be whole samples: the one on the boundary counts in part. With c² = 1 + (1/α − 1)² the χ²
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
        weights: how much each sample counts; they add up to 1, and are the gradient of the loss by the samples' own.
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
    """The mean of the worst share of the samples: conditional value at risk.

        sup Σ q_i ℓ_i  with  0 ≤ q_i ≤ 1/(αB),  Σ q_i = 1

    Args:
        losses: per-sample losses, any shape.
        alpha: the share, in (0, 1]; 1 is the mean. Less than one sample is the largest loss.

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
        alpha: in (0, 1]; 1 is the mean, and the ball grows as it falls. Up to ½ it holds all of CVaR's q of the same α.

    Examples:
        >>> import torch
        >>> from geonorm.robust import chi_square
        >>> round(chi_square(torch.tensor([1.0, 2.0, 6.0, 3.0]), alpha=0.5).loss.item(), 3)
        4.869
    """
    return chi_square_doro(losses, alpha, 0.0)


def cvar_doro(losses: Tensor, alpha: float, eps: float, trim: str = "exact") -> RobustLoss:
    """CVaR of what is left when the largest losses are dropped as outliers.

    Args:
        losses: per-sample losses, any shape.
        alpha: the share of the rest, in (0, 1].
        eps: the share dropped first, in [0, 1).
        trim: ``"exact"`` drops eps·B samples, the last of them in part; ``"floor"`` drops int(eps·B).

    Examples:
        >>> import torch
        >>> from geonorm.robust import cvar_doro
        >>> cvar_doro(torch.tensor([1.0, 2.0, 99.0, 3.0]), alpha=1 / 3, eps=0.25).loss
        tensor(3.)
    """
    flat = _flat(losses)
    _check(alpha, eps, trim)
    order, rank, dropped = _ranked(flat, eps, trim)
    kept = alpha * (flat.numel() - dropped)
    share = (torch.clamp(rank + 1, max=dropped + kept) - torch.clamp(rank, min=dropped)).clamp_min(0.0)
    # A share below one sample lies inside the first one that is not dropped.
    weights = _in_place(share / share.sum(), order)
    return RobustLoss((weights * flat).sum(), weights.view_as(losses))


def chi_square_doro(losses: Tensor, alpha: float, eps: float, trim: str = "exact") -> RobustLoss:
    """The χ² loss of what is left when the largest losses are dropped as outliers.

    Args:
        losses: per-sample losses, any shape.
        alpha: as in ``chi_square``.
        eps: the share dropped first, in [0, 1).
        trim: as in ``cvar_doro``.

    Examples:
        >>> import torch
        >>> from geonorm.robust import chi_square_doro
        >>> chi_square_doro(torch.tensor([1.0, 2.0, 99.0, 3.0]), alpha=0.5, eps=0.25).loss < 4
        tensor(True)
    """
    flat = _flat(losses)
    _check(alpha, eps, trim)
    order, rank, dropped = _ranked(flat, eps, trim)
    mass = (rank + 1 - torch.clamp(rank, min=dropped)).clamp_min(0.0) / (flat.numel() - dropped)
    size = 1 + (1 / alpha - 1) ** 2  # c²
    worst = flat[order]
    # With α = 1 the ball is a point, and every sample counts.
    eta = worst.new_tensor(-math.inf) if size == 1 else _level(worst.detach(), mass, size)
    excess = torch.where(mass > 0, (worst.detach() - eta).clamp_min(0.0), 0.0)
    # No sample lies above the level when the largest loss takes everything, or when all are equal.
    largest = torch.where(mass > 0, worst.detach(), -math.inf).max()
    inside = torch.where(excess.sum() > 0, excess > 0, worst.detach() == largest)
    above = torch.where(inside, mass, 0.0)
    total = above.sum()
    mean = (above * worst).sum() / total
    variance = (above * (worst - mean).square()).sum() / total
    rounding = 16 * torch.finfo(worst.dtype).eps * worst.detach().abs().max()
    gain = size * total - 1
    tilted = (variance.detach() > rounding.square()) & (gain > 0) & (size > 1)
    gain, variance = torch.where(tilted, gain, 1.0), torch.where(tilted, variance, 1.0)  # a root has no slope at 0
    loss = mean + torch.where(tilted, (variance * gain).sqrt(), 0.0)
    weights = above * torch.where(tilted, excess, 1.0)
    weights = _in_place(weights / weights.sum(), order)
    return RobustLoss(loss, weights.view_as(losses))


def _level(worst: Tensor, mass: Tensor, size: float) -> Tensor:
    """η: for the samples above each candidate the level that they imply, and of those the one that fits its samples.

    ``worst``: losses in falling order; ``mass``: how much each counts, together 1.
    """
    first = torch.where(mass > 0, worst, -math.inf).max()
    gap = torch.where(mass > 0, first - worst, 0.0)  # from the largest: sums of squares keep their digits
    total = mass.cumsum(0)
    mean = (mass * gap).cumsum(0) / total.clamp_min(1e-300)
    variance = ((mass * gap.square()).cumsum(0) / total.clamp_min(1e-300) - mean.square()).clamp_min(0.0)
    gain = size * total - 1
    usable = (gain > 0) & (mass > 0)
    depth = mean + (variance / torch.where(usable, gain, 1.0)).sqrt()  # of η below the largest
    following = torch.cat([gap[1:], gap.new_full((1,), math.inf)])
    misfit = (depth - following).clamp_min(0.0) + (gap - depth).clamp_min(0.0)
    best = torch.where(usable, misfit, math.inf).argmin()
    return torch.where(usable.any(), first - depth.gather(0, best[None])[0], -math.inf)


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
        raise ValueError(f"expected alpha in (0, 1], the share of the worst samples (got {alpha})")
    if not 0 <= eps < 1:
        raise ValueError(f"expected eps in [0, 1), the share of suspected outliers (got {eps})")
    if trim not in TRIMS:
        raise ValueError(f"expected trim to be one of {TRIMS} (got {trim!r})")


def _ranked(flat: Tensor, eps: float, trim: str) -> tuple[Tensor, Tensor, float]:
    """The order of falling losses, their ranks, and how many of the first are dropped."""
    order = flat.detach().argsort(descending=True, stable=True)
    rank = torch.arange(flat.numel(), dtype=flat.dtype, device=flat.device)
    dropped = eps * flat.numel()
    return order, rank, float(int(dropped)) if trim == "floor" else dropped


def _in_place(values: Tensor, order: Tensor) -> Tensor:
    """Values of the sorted samples where the samples are."""
    return torch.empty_like(values).scatter(0, order, values)
