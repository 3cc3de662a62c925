"""Findings are grouped under the cause that explains them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from geonorm.analysis import diagnose
from geonorm.analysis.diagnose.common_causes import group_by_cause
from geonorm.analysis.diagnose.finding import Finding


def finding(kind: str, layer: str, severity: str = "warning", **more: Any) -> Finding:
    return Finding(severity, kind, layer, "what", "evidence", "advice", **more)


def test_consequences_go_under_their_cause() -> None:
    causes = group_by_cause(
        [finding("stale statistics", "2", "error", harm=0.9, cure="recalibrate"), finding("momentum", "1")],
        {"1": "0"},
        ["", "0", "1", "2"],
    )
    (cause,) = causes
    assert (cause.kind, cause.severity, cause.harm, cause.cure) == ("momentum", "error", 0.9, "recalibrate")
    assert [f.kind for f in cause.consequences] == ["stale statistics"]


def test_a_cause_behind_does_not_explain_what_is_in_front() -> None:
    causes = group_by_cause([finding("stale statistics", "1"), finding("collapsed channels", "4")], {}, ["", "1", "4"])
    assert len(causes) == 2


def test_the_same_fault_is_told_once() -> None:
    (one,) = group_by_cause(
        [finding("small batch", str(i), harm=0.1 * i) for i in range(9)], {}, [str(i) for i in range(9)]
    )
    assert one.layer == "8"
    assert len(one.layers) == 9
    assert "8 other layers" in one.evidence


def test_weight_decay_does_not_warn_nine_times() -> None:
    layers = []
    for _ in range(9):
        layers += [nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(1e-6)
    found = diagnose(model, torch.randn(64, 16))
    assert [f.kind for f in found.alarms()] == ["tiny weights"]
    assert len(found.alarms()[0].layers) == 9
