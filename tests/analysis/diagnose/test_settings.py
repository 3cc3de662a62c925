"""Findings about the settings of norms: frozen, in evaluation, too few values, not synchronized."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import diagnose


def mlp(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16, bias=False), *between, nn.ReLU(), nn.Linear(16, 4))


def kinds(model: nn.Module, batches, **options) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in diagnose(model, batches, **options).findings}


def test_frozen_norms_are_a_note() -> None:
    model = mlp(nn.BatchNorm1d(16))
    model(torch.randn(64, 8))
    geonorm.freeze(model)
    for mode in (True, False):  # train() sets the flag of a frozen norm too, until it runs
        model.train()[1].training = mode
        assert kinds(model, torch.randn(64, 8), synthetic=True) == {"not training": "note"}


def kinds(model: nn.Module, batches: object) -> set[str]:
    return {finding.kind for finding in diagnose(model, batches).findings}


@pytest.mark.parametrize("how", ["frozen", "evaluation"])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_norms_that_do_not_measure_the_batch_need_none(how: str, size: int) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7))
    assert kinds(model, torch.randn(size, 5)) & {"single value", "two values", "small batch"}
    if how == "frozen":
        geonorm.freeze(model)
        model.train()
    else:
        model.eval()
    assert not kinds(model, torch.randn(size, 5)) & {"single value", "two values", "small batch"}


def test_norms_of_several_processes_that_do_not_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()), torch.randn(24, 8)
    assert diagnose(model, x).alarms() == []
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    assert [f.kind for f in diagnose(model, x).alarms()] == ["not synced"]
