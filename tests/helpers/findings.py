"""The findings of ``diagnose`` by their kind, and a small network to plant faults in."""

from __future__ import annotations

import torch
from torch import nn

from geonorm.analysis import diagnose


def small_mlp(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16, bias=False), *between, nn.ReLU(), nn.Linear(16, 4))


def severity_by_kind(model: nn.Module, batches, **options) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in diagnose(model, batches, **options).findings}
