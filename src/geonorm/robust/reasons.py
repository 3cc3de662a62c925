"""Why a sample looks broken, judged by its own values."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

REASONS = ("not finite", "too large", "offset", "constant", "noise", "unusual")
_FLAT = 1e-6  # a channel with a smaller deviation relative to its largest value does not vary
_WIDE = 3.0  # a spread above this many usual spreads is too large; a mean that far off is an offset
_NARROW = 0.1  # a spread below this fraction of the usual one counts as constant
_ROUGH = 0.7  # independent values have 1, images about 0.1


class Facts(NamedTuple):
    """Facts about the values of one sample, or of the usual sample.

    Attributes:
        mean, spread: of all values.
        rough: mean square of the differences of neighbours, over twice the variance within channels: 1 for values that
            are independent of each other; NaN where there are no neighbours.
        bad: how many values are not finite.
        flat: the first channel that does not vary, or −1.
        flats: how many channels do not vary.
    """

    mean: float
    spread: float
    rough: float
    bad: float
    flat: float
    flats: float


class Far(NamedTuple):
    """The feature of a sample that is farthest off: its number, its value, the usual value, and how many are far."""

    feature: float
    value: float
    usual: float
    number: float


def facts_of(x: Tensor) -> Tensor:
    """``Facts`` of all samples, ``[samples, 6]``, for x of shape (N, C, *)."""
    x = x.detach().cpu().double()
    values = x.flatten(1)
    spread, mean = torch.std_mean(values, 1, correction=0)
    deviation = x.flatten(2).std(2, correction=0) if x.dim() > 2 else torch.full_like(x, math.inf)
    largest = x.abs().flatten(2).amax(2) if x.dim() > 2 else x.abs()
    is_flat = deviation <= _FLAT * largest
    first = torch.where(is_flat.any(1), is_flat.int().argmax(1), -1)
    bad = (~values.isfinite()).sum(1)
    return torch.stack([mean, spread, _roughness(x, deviation), bad, first, is_flat.sum(1)], 1)


def _roughness(x: Tensor, deviation: Tensor) -> Tensor:
    steps = [x.diff(dim=d).square().flatten(1).mean(1) for d in range(2, x.dim()) if x.shape[d] > 1]
    if not steps:
        return x.new_full((len(x),), math.nan)
    return torch.stack(steps).mean(0) / (2 * deviation.square().mean(1))


def explain(own: Facts, usual: Facts, shape: tuple[int, ...], far: Far | None) -> tuple[str, str] | None:
    """The reason and its evidence; ``None`` if the values themselves show none. ``shape`` is that of a sample."""
    channels, number = shape[0], math.prod(shape)
    if own.bad:
        return "not finite", f"{own.bad:.0f} of {number} values" if number > 1 else "its only value"
    if own.spread == 0 and number > 1 and usual.spread > 0:
        return "constant", f"all values are {own.mean:.4g}"
    if own.flats > usual.flats and len(shape) > 1:
        all_of_them = own.flats == channels
        return "constant", "no channel varies" if all_of_them else f"channel {own.flat:.0f} does not vary"
    if own.rough >= max(_ROUGH, 2 * usual.rough):
        return "noise", f"roughness {own.rough:.2g}, usually {usual.rough:.2g}; independent values have 1"
    if far is not None and far.number == 1:
        return "too large", f"feature {far.feature:.0f} is {far.value:.4g}, usually {far.usual:.4g}"
    spread = f"spread {own.spread:.4g}, usually {usual.spread:.4g}"
    if own.spread > _WIDE * usual.spread:
        return "too large", spread
    if abs(own.mean - usual.mean) > _WIDE * usual.spread:
        return "offset", f"mean {own.mean:.4g}, usually {usual.mean:.4g}"
    return ("constant", spread) if own.spread < _NARROW * usual.spread else None


def usual_facts(facts: Tensor) -> Facts:
    """The medians of the samples that are not broken."""
    return Facts(*facts.nanmedian(0).values.tolist()) if len(facts) else Facts(*[math.nan] * 6)
