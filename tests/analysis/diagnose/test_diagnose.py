"""`diagnose` as a whole: the order of findings, odd models and batches, every normalization of this library."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import diagnose
from helpers.findings import severity_by_kind, small_mlp


def test_severe_findings_come_first_and_are_whole() -> None:
    model = small_mlp(nn.BatchNorm1d(16, momentum=0.0))
    model[0] = nn.Linear(8, 16)
    with torch.no_grad():
        model[3].weight[0, 0] = math.nan
    found = diagnose(model, torch.randn(32, 8))
    assert [finding.severity for finding in found.findings] == ["error", "warning", "note"]
    assert found.counts() == {"error": 1, "warning": 1, "note": 1}
    assert len(found.alarms()) == 2
    for finding in found.findings:
        assert all((finding.kind, finding.layer, finding.what, finding.evidence, finding.advice))
    text = str(found)
    assert text.index("ERROR") < text.index("WARNING") < text.index("NOTE")
    assert found.to_dict()["findings"][0]["layer"] == "3"
    assert len(found.plot().axes) == 1
    assert found.table().splitlines()[0].startswith("severity")


def test_an_empty_or_odd_model_gets_an_answer() -> None:
    assert diagnose(nn.Linear(3, 2), torch.randn(4, 3)).layers == []
    assert severity_by_kind(nn.BatchNorm1d(4), torch.randn(64, 4)) == {}
    assert severity_by_kind(nn.Sequential(nn.BatchNorm1d(4, affine=False)), torch.randn(64, 4)) == {}
    half = small_mlp(nn.BatchNorm1d(16, eps=1e-8)).half()  # statistics are in float32: this eps is not lost
    assert severity_by_kind(half, torch.randn(64, 8).half()) == {}
    assert severity_by_kind(small_mlp(nn.LayerNorm(16)).bfloat16(), torch.randn(64, 8).bfloat16()) == {}
    lonely = small_mlp(nn.Unflatten(1, (16, 1)), nn.LayerNorm(1), nn.Flatten())
    assert severity_by_kind(lonely, torch.randn(64, 8), synthetic=True) == {"single value": "error"}


@pytest.mark.parametrize("name", [name for name in geonorm.norms() if name not in ("wn", "ws", "cwn", "sn")])
def test_every_normalization_of_this_library_is_read(name: str) -> None:
    norm = geonorm.create_norm(name, 8)
    if name in ("ln", "augln") or "graph" in name:
        model, x = nn.Sequential(nn.Linear(3, 8, bias=False), norm), torch.randn(64, 3)
    else:
        model, x = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm), torch.randn(32, 3, 8, 8)
    found = diagnose(model, x)
    assert found.findings == []
    assert len(found.layers) == (name != "none")
    known = name != "none" and "graph" not in name  # the axes of a graph norm come with the batch
    assert len(found.sphere.layers) == known


def test_forward_says_how_to_call_the_model() -> None:
    model = small_mlp(nn.BatchNorm1d(16))
    batches = [{"values": torch.randn(32, 8)}]
    with pytest.raises(TypeError, match="forward="):
        diagnose(model, batches)
    assert diagnose(model, batches, lambda model, batch: model(batch["values"])).findings == []


@pytest.mark.parametrize("batches", [[], torch.randn(0, 8), [torch.randn(0, 8)]], ids=["none", "empty", "one empty"])
def test_no_data_is_an_error(batches) -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        diagnose(small_mlp(nn.BatchNorm1d(16)), batches)


def test_an_error_of_a_reading_is_not_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("not the model")

    monkeypatch.setattr("geonorm.analysis.watch.effective_weights", broken)
    model, x = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), torch.randn(32, 5)
    found = diagnose(model, x)
    assert "does not run" not in {finding.kind for finding in found.findings}
    assert "not the model" in found.sphere.skipped["1"]


@pytest.mark.parametrize("last", [1, 3])
def test_a_short_last_batch_is_not_typical(last: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7))
    batches = [torch.randn(64, 5), torch.randn(64, 5), torch.randn(last, 5)]
    found = diagnose(model, batches)
    assert found.alarms() == []
    assert found.missing == {}
    (layer,) = found.sphere.layers
    assert layer.dimension == 64
    assert found.batch_width.layers[0].values == 64


def test_a_list_of_input_and_class_numbers_is_one_batch() -> None:
    model, x = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), torch.randn(32, 5)
    assert diagnose(model, [x, torch.arange(32)]).samples == 32
    assert diagnose(model, [x, x]).samples == 64


def test_it_runs_in_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 2))
    with torch.inference_mode():
        found = diagnose(model, torch.randn(32, 5))
    assert found.missing == {}
    assert found.activation_effect.operations[1].division is not None
