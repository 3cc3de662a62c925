"""A small classifier with one norm, and batches for it, in float64: for exact derivatives."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def seeded_randn64(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labelled_batch(samples: int = 12) -> tuple[Tensor, Tensor]:
    return seeded_randn64(samples, 4), torch.arange(samples) % 3


def classifier(norm: nn.Module | None = None, activation: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5) if norm is None else norm
    return nn.Sequential(nn.Linear(4, 5), norm, activation or nn.Tanh(), nn.Linear(5, 3)).double()
