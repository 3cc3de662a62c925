"""Findings about the settings of norms: frozen, in evaluation, too few values, not synchronized."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import diagnose
from helpers.findings import severity_by_kind, small_mlp


def test_frozen_norms_are_a_note() -> None:
    model = small_mlp(nn.BatchNorm1d(16))
    model(torch.randn(64, 8))
    geonorm.freeze(model)
    for mode in (True, False):  # train() sets the flag of a frozen norm too, until it runs
        model.train()[1].training = mode
        assert severity_by_kind(model, torch.randn(64, 8), synthetic=True) == {"not training": "note"}


@pytest.mark.parametrize("how", ["frozen", "evaluation"])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_norms_that_do_not_measure_the_batch_need_none(how: str, size: int) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7))
    assert severity_by_kind(model, torch.randn(size, 5)).keys() & {"single value", "two values", "small batch"}
    if how == "frozen":
        geonorm.freeze(model)
        model.train()
    else:
        model.eval()
    assert not severity_by_kind(model, torch.randn(size, 5)).keys() & {"single value", "two values", "small batch"}


def test_norms_of_several_processes_that_do_not_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()), torch.randn(24, 8)
    assert diagnose(model, x).alarms() == []
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    assert [f.kind for f in diagnose(model, x).alarms()] == ["not synced"]
