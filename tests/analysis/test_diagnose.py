"""Planted faults are found where they are, healthy networks raise no alarm, odd models get an answer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import diagnose
from helpers.planted_faults import faults

STORED = {outcome.fault: outcome for outcome in faults.stored()}


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.what)
def test_planted_faults_are_found_as_the_page_says(fault) -> None:
    told, outcome = faults.ask(fault)
    assert outcome == STORED[fault.what], str(told)


def test_almost_all_planted_faults_are_found() -> None:
    planted = [outcome for outcome in STORED.values() if outcome.layer]
    assert len(planted) >= 12
    assert [outcome.fault for outcome in planted if not outcome.found] == [
        "running mean of one channel off by 0.3 σ",
        "channels equal on these data, by unequal weights",
    ]


def test_the_table_of_the_page_is_what_is_stored() -> None:
    written = faults.PAGE.read_text(encoding="utf-8").partition("<!-- faults -->\n")[2].partition("<!-- end -->\n")[0]
    assert written == faults.table(faults.stored())


@pytest.mark.parametrize("name", ["ResNet, BatchNorm", "MLP, BatchNorm", "ResNet without norms"])
def test_a_healthy_network_raises_no_alarm(name: str) -> None:
    found = diagnose(*faults.healthy(name))
    assert found.findings == []
    assert found.missing == {}
    assert "Healthy" in str(found) or not found.layers


@pytest.mark.slow
@pytest.mark.parametrize("name", faults.HEALTHY)
def test_no_healthy_network_raises_an_alarm(name: str) -> None:
    assert diagnose(*faults.healthy(name)).alarms() == []


@pytest.mark.slow
@pytest.mark.parametrize("family", ["resnet20", "densenet", "wrn", "transformer"])
def test_fresh_models_from_outside_raise_no_alarm(family: str) -> None:
    from helpers.third_party_models import THIRD_PARTY_MODELS, image_batch

    torch.manual_seed(0)
    case = next(case for case in THIRD_PARTY_MODELS if case.name == family)
    x = torch.randn(32, 7, 16) if family == "transformer" else image_batch(32, 16 if family == "densenet" else 32)[0]
    assert diagnose(case.make(), x).alarms() == []


def mlp(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16, bias=False), *between, nn.ReLU(), nn.Linear(16, 4))


def kinds(model: nn.Module, batches, **options) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in diagnose(model, batches, **options).findings}


def test_severe_findings_come_first_and_are_whole() -> None:
    model = mlp(nn.BatchNorm1d(16, momentum=0.0))
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


def test_made_up_inputs_say_nothing_about_data() -> None:
    model, batches = faults.healthy()
    with torch.no_grad():
        model.norm.running_mean += 3
    assert "stale statistics" in kinds(model, batches)
    assert kinds(model, [torch.randn_like(batches[0])], synthetic=True) == {}


def test_frozen_norms_are_a_note() -> None:
    model = mlp(nn.BatchNorm1d(16))
    model(torch.randn(64, 8))
    geonorm.freeze(model)
    for mode in (True, False):  # train() sets the flag of a frozen norm too, until it runs
        model.train()[1].training = mode
        assert kinds(model, torch.randn(64, 8), synthetic=True) == {"not training": "note"}


def test_an_empty_or_odd_model_gets_an_answer() -> None:
    assert diagnose(nn.Linear(3, 2), torch.randn(4, 3)).layers == []
    assert kinds(nn.BatchNorm1d(4), torch.randn(64, 4)) == {}
    assert kinds(nn.Sequential(nn.BatchNorm1d(4, affine=False)), torch.randn(64, 4)) == {}
    half = mlp(nn.BatchNorm1d(16, eps=1e-8)).half()  # statistics are in float32: this eps is not lost
    assert kinds(half, torch.randn(64, 8).half()) == {}
    assert kinds(mlp(nn.LayerNorm(16)).bfloat16(), torch.randn(64, 8).bfloat16()) == {}
    lonely = mlp(nn.Unflatten(1, (16, 1)), nn.LayerNorm(1), nn.Flatten())
    assert kinds(lonely, torch.randn(64, 8), synthetic=True) == {"single value": "error"}


def test_a_bias_is_redundant_only_where_all_of_it_is_removed() -> None:
    def biased(norm: nn.Module) -> dict[str, str]:
        return kinds(nn.Sequential(nn.Linear(8, 16), norm), torch.randn(64, 8), synthetic=True)

    frozen = nn.BatchNorm1d(16)
    geonorm.freeze(frozen)
    assert biased(geonorm.AugBatchNorm1d(16)) == {"redundant bias": "note"}
    for norm in (geonorm.AugBatchNorm1d(16, alpha=0.5), geonorm.AugBatchNorm1d(16, learn_alpha=True)):
        assert biased(norm) == {}
    assert biased(geonorm.PopNorm1d(16, shift="mul")) == {}
    assert biased(nn.LayerNorm(16)) == {}
    assert "redundant bias" not in biased(frozen)


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


def test_a_layer_that_never_runs_and_one_that_runs_twice() -> None:
    class Twice(nn.Module):
        def __init__(self, activation: nn.Module) -> None:
            super().__init__()
            self.norm, self.spare = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
            self.activation = activation

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.activation(self.norm(x)))

    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    # After tanh: mean 0 and σ 0.63, 0.37 apart. After ReLU: mean 0.40 and σ 0.58, 0.58 apart.
    assert kinds(Twice(nn.Tanh()), x) == {"never ran": "note", "shared norm": "note"}
    assert kinds(Twice(nn.ReLU()), x) == {"never ran": "note", "shared norm": "warning"}
    assert kinds(Twice(nn.Tanh()), 3 * x + 2) == {"never ran": "note", "shared norm": "warning"}


def test_what_stands_between_two_norms_counts() -> None:
    """Something in place between them is something; a container or an Identity is nothing."""

    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Sequential(nn.BatchNorm1d(8)), nn.BatchNorm1d(8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y += x.tanh()
            return self.second(y)

    x = torch.randn(64, 8)
    assert kinds(InPlace(), x) == {}
    assert kinds(nn.Sequential(nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.BatchNorm1d(8)), x) == {}
    inside = nn.Sequential(nn.Sequential(nn.BatchNorm1d(8)), nn.Identity(), nn.Dropout(0.5), nn.BatchNorm1d(8))
    assert kinds(inside, x) == {"norm after norm": "warning", "variance shift": "note"}


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


def test_forward_says_how_to_call_the_model() -> None:
    model = mlp(nn.BatchNorm1d(16))
    batches = [{"values": torch.randn(32, 8)}]
    with pytest.raises(TypeError, match="forward="):
        diagnose(model, batches)
    assert diagnose(model, batches, lambda model, batch: model(batch["values"])).findings == []


@pytest.mark.parametrize("batches", [[], torch.randn(0, 8), [torch.randn(0, 8)]], ids=["none", "empty", "one empty"])
def test_no_data_is_an_error(batches) -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        diagnose(mlp(nn.BatchNorm1d(16)), batches)


def test_outliers_that_the_norm_bears_are_a_note() -> None:
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    x[::20] += 30
    found = {}
    for spec in ("bn", "robustbn"):
        model = geonorm.create_norm(spec, 8, dim=1)
        found[spec] = next(one for one in diagnose(model, x).findings if one.kind == "outliers")
    assert (found["bn"].severity, found["robustbn"].severity) == ("warning", "note")
    assert "guardbn" in found["bn"].advice
    assert "guardbn" not in found["robustbn"].advice
