"""What the watch over a forward pass sees."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from geonorm.analysis.watch import read


class OwnNorm(nn.BatchNorm1d):
    """A norm in plain operations, which has a sum, a ReLU and a tanh of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centered = x - x.mean(0)
        centered = centered + 1e-9 * centered.relu() + 1e-9 * centered.tanh()
        return centered / centered.square().mean(0).add(self.eps).sqrt() * self.weight + self.bias


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = OwnNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(x).relu().tanh()


@pytest.mark.parametrize("model", [OwnNorm(4), nn.Sequential(OwnNorm(4))], ids=["alone", "inside"])
def test_the_arithmetic_of_a_norm_is_not_the_networks(model: nn.Module) -> None:
    found = read(model, [torch.randn(16, 4)])
    assert found.norms
    assert not found.sums
    assert not found.relus
    assert not found.bounded


def test_what_follows_a_norm_is_seen() -> None:
    found = read(Residual(), [torch.randn(16, 4)])
    assert [len(part) for part in (found.sums, found.relus, found.bounded)] == [1, 1, 1]
