"""Findings about NaN and about models that fail."""

from __future__ import annotations

import math

import torch
from torch import nn

from geonorm.analysis import diagnose


def mlp(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16, bias=False), *between, nn.ReLU(), nn.Linear(16, 4))


def kinds(model: nn.Module, batches, **options) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in diagnose(model, batches, **options).findings}


def test_a_model_that_fails_is_told_where() -> None:
    model = mlp(nn.BatchNorm1d(15))
    (finding,) = diagnose(model, torch.randn(32, 8)).findings
    assert (finding.severity, finding.kind) == ("error", "does not run")
    assert "in 1:" in finding.evidence
    assert "batch_width failed" in str(diagnose(model, torch.randn(32, 8)))


def test_data_with_nan_is_not_the_models_fault() -> None:
    x = torch.randn(32, 8)
    x[3, 2] = math.nan
    assert kinds(mlp(nn.BatchNorm1d(16)), x) == {"bad data": "error"}
