"""Findings about the weights before norms: biases without effect, repeated rows, sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import diagnose
from geonorm.optim import project_scale_invariant
from helpers.findings import severity_by_kind


def net(operation: nn.Module, norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(operation, norm, nn.Tanh())


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(8), nn.LayerNorm(8)], ids=["batch", "layer"])
def test_the_advice_about_huge_weights_changes_no_output_in_training(norm: nn.Module) -> None:
    torch.manual_seed(0)
    model, x = net(nn.Linear(6, 8), norm).double(), torch.randn(64, 6).double()
    with torch.no_grad():
        model[0].weight.mul_(1000)
        model[0].bias.mul_(1000)
    (finding,) = [f for f in diagnose(model, x).findings if f.kind == "huge weights"]
    assert "project_scale_invariant(model.train(), radius=1)" in finding.advice
    joint = isinstance(norm, nn.LayerNorm)
    assert ("and their biases" in finding.advice) == joint
    assert ("recalibrate" in finding.advice) != joint
    with torch.no_grad():
        before = model(x)
        project_scale_invariant(model.train(), radius=1)
        assert float((model(x) - before).abs().max()) < 1e-3  # eps, at rows of length 1
        assert float(model[0].weight.norm()) < 3


def test_rows_of_transposed_convolutions_are_in_dimension_1() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3), nn.BatchNorm2d(8))
    with torch.no_grad():
        model[0].weight[:, 3] *= 1e-5
    (finding,) = [f for f in diagnose(model, torch.randn(8, 4, 6, 6)).findings if f.kind == "tiny weights"]
    assert finding.channels == [3]


def test_a_bias_is_redundant_only_where_all_of_it_is_removed() -> None:
    def biased(norm: nn.Module) -> dict[str, str]:
        return severity_by_kind(nn.Sequential(nn.Linear(8, 16), norm), torch.randn(64, 8), synthetic=True)

    frozen = nn.BatchNorm1d(16)
    geonorm.freeze(frozen)
    assert biased(geonorm.AugBatchNorm1d(16)) == {"redundant bias": "note"}
    for norm in (geonorm.AugBatchNorm1d(16, alpha=0.5), geonorm.AugBatchNorm1d(16, learn_alpha=True)):
        assert biased(norm) == {}
    assert biased(geonorm.PopNorm1d(16, shift="mul")) == {}
    assert biased(nn.LayerNorm(16)) == {}
    assert "redundant bias" not in biased(frozen)


@pytest.mark.parametrize(
    ("norm", "found"),
    [(nn.BatchNorm1d(8), True), (nn.LayerNorm(8), False), (nn.RMSNorm(8), False), (nn.GroupNorm(2, 8), False)],
    ids=["batch", "layer", "rms", "group"],
)
def test_parallel_rows_are_duplicates_only_where_their_size_is_removed(norm: nn.Module, found: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), norm)
    with torch.no_grad():
        model[0].weight[3] = 2 * model[0].weight[1]
    assert ("duplicate channels" in severity_by_kind(model, torch.randn(32, 6))) == found


def test_the_learning_rate_decides_what_is_too_long() -> None:
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()), torch.randn(64, 8)
    with torch.no_grad():
        model[0].weight.mul_(50 / model[0].weight.norm(dim=1, keepdim=True))
    assert diagnose(model, x).alarms() == []
    assert diagnose(model, x, lr=0.1).alarms() == []
    (told,) = diagnose(model, x, lr=1e-4).alarms()
    assert (told.kind, told.layer) == ("huge weights", "0")
