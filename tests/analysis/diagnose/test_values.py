"""Findings about NaN and about models that fail."""

from __future__ import annotations

import math

import torch
from torch import nn

from geonorm.analysis import diagnose
from helpers.findings import severity_by_kind, small_mlp


def test_a_model_that_fails_is_told_where() -> None:
    model = small_mlp(nn.BatchNorm1d(15))
    (finding,) = diagnose(model, torch.randn(32, 8)).findings
    assert (finding.severity, finding.kind) == ("error", "does not run")
    assert "in 1:" in finding.evidence
    assert "batch_width failed" in str(diagnose(model, torch.randn(32, 8)))


def test_data_with_nan_is_not_the_models_fault() -> None:
    x = torch.randn(32, 8)
    x[3, 2] = math.nan
    assert severity_by_kind(small_mlp(nn.BatchNorm1d(16)), x) == {"bad data": "error"}
