"""Planted faults are found where they are, healthy networks raise no alarm, and the stored tables say so."""

from __future__ import annotations

import pytest
import torch

from geonorm.analysis import diagnose
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.planted_faults import faults, faults_in_use, random_faults

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


def test_the_table_of_random_faults_is_what_is_stored() -> None:
    page = random_faults.PAGE.read_text(encoding="utf-8")
    written = page.partition("<!-- random faults -->\n")[2].partition("<!-- end -->\n")[0]
    assert written == random_faults.table(random_faults.stored())


def test_the_rates_are_those_that_were_promised() -> None:
    stored = random_faults.stored()
    faulty, sound = [o for o in stored if o.fault], [o for o in stored if not o.fault]
    assert (len(faulty), len(sound)) == (200, 100)
    assert sum(o.found for o in faulty) >= 160
    assert sum(not o.found for o in sound) <= 2


@pytest.mark.parametrize("number", [3, 22, 57, 204, 251])
def test_a_random_case_comes_out_as_it_is_stored(number: int) -> None:
    assert random_faults.ask(number).found == random_faults.stored()[number].found


def test_every_network_is_left_alone() -> None:
    for name in ("mlp", "dropout", "residual", "tokens"):
        model, batches = faults_in_use.trained(name)
        with assert_model_unchanged(model):
            diagnose(model, batches, fix=True)
