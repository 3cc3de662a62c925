"""Findings about evaluation: outputs with running statistics against those with batch statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from geonorm.analysis import diagnose
from geonorm.analysis.diagnose.finding import Finding
from helpers.planted_faults import faults_in_use


def noisy_classifier(scale: float) -> tuple[nn.Module, list[Any]]:
    model, batches = faults_in_use.trained("mlp")
    return model.eval(), [(scale * x, y) for x, y in batches]


def test_rescaled_inputs_are_judged_by_their_harm() -> None:
    found = diagnose(*noisy_classifier(1.0))
    assert found.alarms() == []
    assert found.evaluation.now.share > 0.8
    harmful = diagnose(*noisy_classifier(30.0), fix=True)
    (finding,) = [f for f in harmful.findings if f.kind == "stale statistics" or f.consequences]
    told = str(harmful)
    assert finding.harm > 0.05
    assert "accuracy" in told
    assert "recalibrated" in told
    assert harmful.after.alarms() == [] or {f.kind for f in harmful.after.alarms()} == {"input not normalized"}
    assert harmful.after.evaluation.now.share > harmful.evaluation.now.share


def test_the_norm_that_is_to_blame_is_named() -> None:
    model, batches = faults_in_use.trained("mlp")
    with torch.no_grad():
        model[4].running_var.mul_(400)
        model[4].running_mean.add_(40)
    (finding,) = diagnose(model.eval(), batches).findings
    assert (finding.kind, finding.layer) == ("stale statistics", "4")
    assert "with only 4 recalibrated" in finding.evidence
    assert finding.harm > 0.1


def test_outputs_without_classes_are_judged_by_their_movement() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
    for _ in range(50):
        model(torch.randn(64, 8))
    assert diagnose(model.eval(), torch.randn(128, 8)).alarms() == []
    found = diagnose(model, 5 * torch.randn(128, 8) + 3)
    assert [f.kind for f in found.alarms()] == ["stale statistics"]
    assert "of their spread" in str(found)


def test_a_model_that_has_just_begun_is_not_judged() -> None:
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    x = 20 * torch.randn(64, 8)
    model(x)
    assert "stale statistics" not in {f.kind for f in diagnose(model, x / 20).findings}


def finding(kind: str, layer: str, severity: str = "warning", **more: Any) -> Finding:
    return Finding(severity, kind, layer, "what", "evidence", "advice", **more)
