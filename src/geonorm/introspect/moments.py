"""Running sums of what reaches one place of a network, channel by channel."""

from __future__ import annotations

import torch
from torch import Tensor

_KEPT = 4096  # values of a channel from which quantiles are taken


class Moments:
    """Mean and variance of rows of values over several batches, pooled exactly, and a sample for quantiles."""

    def __init__(self) -> None:
        self.number = 0
        self.mean = torch.zeros(0, dtype=torch.float64)
        self.within = torch.zeros(0, dtype=torch.float64)  # sum over batches of the batch's own variances
        self.batches = 0
        self._squares = torch.zeros(0, dtype=torch.float64)
        self._sample: list[Tensor] = []

    def add(self, rows: Tensor, moments: tuple[Tensor, Tensor] | None = None) -> None:
        """Rows of one batch, as (channels, values) in float64; ``moments``: their variances and means, if known."""
        var, mean = torch.var_mean(rows, 1, correction=0) if moments is None else moments
        var, mean, number = var.cpu(), mean.cpu(), rows.shape[1]
        if not self.batches:
            self.mean, self._squares, self.within = mean, var * number, var.clone()
        else:
            gap, total = mean - self.mean, self.number + number
            self._squares += var * number + gap.square() * self.number * number / total
            self.mean += gap * number / total
            self.within += var
        self.number += number
        self.batches += 1
        room = _KEPT - sum(part.shape[1] for part in self._sample)
        if room > 0:
            # Evenly spaced, so that every sample of the batch has its part.
            self._sample.append(rows[:, :: -(-number // room)].float().cpu())

    @property
    def var(self) -> Tensor:
        """The biased variance of all values."""
        return self._squares / max(self.number, 1)

    def batch_var(self) -> Tensor:
        """The variance that the norm divides by: that of a batch, averaged over the batches."""
        return self.within / max(self.batches, 1)

    def sample(self) -> Tensor:
        """The values that were kept, (channels, places): a column is one place of the data in all channels."""
        return torch.cat(self._sample, 1).double()

    def quartiles(self) -> tuple[Tensor, Tensor, Tensor]:
        """First quartile, median and third quartile of each channel."""
        ordered = self.sample().sort(1).values
        last = ordered.shape[1] - 1
        low, middle, high = (ordered[:, round(share * last)] for share in (0.25, 0.5, 0.75))
        return low, middle, high
