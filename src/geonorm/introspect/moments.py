"""Running moments of the values at one place of a network, channel by channel."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_KEPT = 4096  # values of a channel from which quantiles are taken
_TINY = 1e-300  # avoids a division by a mass of 0


class PooledMoments:
    """Mean and sum of squared deviations per channel, pooled exactly over batches, in float64.

    Attributes:
        mass: number of values, or the sum of their weights, per channel.
        mean: their mean.
        squares: the sum of their squared deviations from the mean.
    """

    def __init__(self) -> None:
        self.mass = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros((), dtype=torch.float64)
        self.squares = torch.zeros((), dtype=torch.float64)

    def add(self, x: Tensor, element_weight: Tensor | None = None) -> None:
        """Add a batch (N, C, *). It is read twice: a large offset costs no digits in deviations from a first mean."""
        dims, shape = [0, *range(2, x.dim())], [1, -1, *[1] * (x.dim() - 2)]
        if element_weight is not None:
            element_weight, x = element_weight.double(), torch.where(element_weight > 0, x, 0.0)
            mass = element_weight.sum(dims)
        else:
            mass = torch.tensor(x.numel() / x.shape[1], dtype=torch.float64, device=x.device)

        def mean_of(values: Tensor) -> Tensor:
            weighted = values if element_weight is None else values * element_weight
            return weighted.sum(dims, dtype=torch.float64) / mass.clamp_min(_TINY)

        first = mean_of(x).to(x.dtype)
        deviation = x - first.view(shape)
        rest = mean_of(deviation)
        self.pool(first.double() + rest, (mean_of(deviation.square()) - rest.square()) * mass, mass)

    def pool(self, mean: Tensor, squares: Tensor, mass: Tensor) -> None:
        """Add the moments of more values, by the formula of Chan et al."""
        total, gap = self.mass.to(mass) + mass, mean - self.mean.to(mean)
        part = mass / total.clamp_min(_TINY)
        self.squares = self.squares.to(squares) + squares + gap.square() * self.mass.to(mass) * part
        self.mean = self.mean.to(mean) + gap * part
        self.mass = total

    def var(self, correction: int = 0) -> Tensor:
        """The variance of all values; NaN where there are too few."""
        mass = self.mass - correction
        return torch.where(mass > 0, self.squares / mass, math.nan)


class Moments:
    """Mean and variance of rows of values over several batches, pooled exactly, and a sample for quantiles."""

    def __init__(self) -> None:
        self.number = 0
        self.within = torch.zeros(0, dtype=torch.float64)  # sum over batches of the batch's own variances
        self.batches = 0
        self._pooled = PooledMoments()
        self._sample: list[Tensor] = []

    def add(self, rows: Tensor, moments: tuple[Tensor, Tensor] | None = None) -> None:
        """Add rows of one batch, (channels, values) in float64; ``moments``: their variances and means, if known."""
        var, mean = torch.var_mean(rows, 1, correction=0) if moments is None else moments
        var, mean, number = var.cpu(), mean.cpu(), rows.shape[1]
        self._pooled.pool(mean, var * number, torch.tensor(float(number), dtype=torch.float64))
        self.within = self.within + var if self.batches else var.clone()
        self.number += number
        self.batches += 1
        room = _KEPT - sum(part.shape[1] for part in self._sample)
        if room > 0:
            # Evenly spaced, so that all samples of the batch are represented.
            self._sample.append(rows[:, :: -(-number // room)].float().cpu())

    @property
    def mean(self) -> Tensor:
        """The mean of all values."""
        return self._pooled.mean

    @property
    def var(self) -> Tensor:
        """The biased variance of all values."""
        return self._pooled.var()

    def batch_var(self) -> Tensor:
        """The variance that the norm divides by: that of a batch, averaged over the batches."""
        return self.within / max(self.batches, 1)

    def sample(self) -> Tensor:
        """The values that were kept, (channels, places): a column is one place of the data, in all channels."""
        return torch.cat(self._sample, 1).double()

    def quartiles(self) -> tuple[Tensor, Tensor, Tensor]:
        """First quartile, median and third quartile of each channel."""
        ordered = self.sample().sort(1).values
        last = ordered.shape[1] - 1
        low, middle, high = (ordered[:, round(share * last)] for share in (0.25, 0.5, 0.75))
        return low, middle, high
