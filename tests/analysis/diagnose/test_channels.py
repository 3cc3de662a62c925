"""Findings about channels that do nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geonorm.analysis import diagnose


def test_dead_channels_are_named_by_their_norm() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8)), nn.ReLU(inplace=True))
    for _ in range(60):
        model(torch.randn(64, 8))
    with torch.no_grad():
        model[0][1].bias[3] = -30
    (finding,) = diagnose(model, torch.randn(64, 8)).findings
    assert (finding.kind, finding.layer, finding.severity, finding.channels) == (
        "dead channels", "0.1", "warning", [3],
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv(x))


def test_dead_channels_of_1d_convolutions_behind_a_sum() -> None:
    torch.manual_seed(0)
    model = Residual()
    with torch.no_grad():
        model.conv.bias[2] = -100
    (finding,) = [f for f in diagnose(model, torch.randn(32, 6, 10)).findings if f.kind == "dead channels"]
    assert finding.channels == [2]
