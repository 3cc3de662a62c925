"""A small model and small data of a user, for the commands that faults are injected into."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

LOG = "GEONORM_FAULTS_LOG"  # a file with the seed of every run that was begun


def make_model() -> nn.Module:
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{torch.initial_seed()}\n")
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


def make_data() -> tuple[TensorDataset, TensorDataset]:
    return samples(1000, seed=0), samples(200, seed=1)


def samples(number: int, seed: int) -> TensorDataset:
    x = torch.randn(number, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def make_batches() -> Iterator[Tensor]:
    """With some samples that look broken."""
    x = torch.randn(20_000, 8, generator=torch.Generator().manual_seed(2))
    x[::1000] *= 1e4
    yield from x.split(32)
