"""Judging by what a network answers: evaluation against training, root causes, cures, and how it is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import diagnose
from geonorm.analysis.behaviour import accuracy, answer_of, compare, labels_of
from geonorm.analysis.diagnose.common_causes import group_by_cause
from geonorm.analysis.diagnose.finding import Finding
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.planted_faults import faults_in_use, random_faults

# Answers


def test_answers_are_compared_by_prediction_and_by_movement() -> None:
    torch.manual_seed(0)
    one = torch.randn(200, 5)
    other = one.clone()
    other[:50] = other[:50].roll(1, 1)
    change = compare([one[:100], one[100:]], [other[:100], other[100:]])
    assert change is not None
    assert change.samples == 200
    assert change.predictions is not None
    assert change.predictions.share == pytest.approx(0.25)
    assert change.predictions.low < 0.25 < change.predictions.high
    same = compare([one], [one])
    assert same is not None
    assert (same.moved, same.predictions.correct) == (0.0, 0)
    numbers = compare([one[:, :1]], [one[:, :1] + one[:, :1].std()])
    assert numbers is not None
    assert numbers.predictions is None
    assert numbers.moved == pytest.approx(1.0, rel=0.02)
    assert compare([one], [None]) is None
    assert compare([one], [one[:, :3]]) is None
    broken = compare([one], [one.clone().fill_(math.nan)])
    assert broken is not None
    assert (broken.moved, broken.predictions.correct) == (math.inf, 200)


def test_answers_and_labels_are_found_in_what_people_use() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    assert torch.equal(answer_of({"loss": x.sum(), "logits": x}), x)
    assert torch.equal(answer_of((x, None)), x)
    assert answer_of(None) is None
    assert torch.equal(labels_of((x, y)), y)
    assert torch.equal(labels_of({"input": x, "labels": y}), y)
    assert labels_of((x, x)) is None
    assert labels_of(x) is None
    assert accuracy([nn.functional.one_hot(y).float()], [(x, y)]).share == 1
    assert accuracy([torch.randn(4, 2)], [(x, y)]) is None  # a label that has no score


# Evaluation against training


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


# Root causes


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


# Cures


@pytest.mark.parametrize("fault", faults_in_use.IN_USE, ids=lambda fault: fault.what)
def test_what_fix_does_is_safe(fault: Any) -> None:
    """The copy is no worse than the model was, the model is as it was, and what was cured is gone."""
    torch.manual_seed(0)
    model, batches = fault.plant()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = diagnose(model, batches, fix=True, **fault.options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found.fixed is not None
    assert found.fixed is not model
    cured = {f.kind for f in found.findings if f.cure}
    left = {f.kind for f in found.after.findings if f.cure}
    assert not (cured & left), f"{found}\n\n{found.after}"
    now, then = found.evaluation.now, found.after.evaluation.now
    if now is not None and then is not None:
        assert then.share >= now.share - 0.05
    assert "Fixed in a copy" in str(found) or not found.done


def test_biases_are_removed_without_a_change() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    for _ in range(60):
        model(torch.randn(64, 8))
    x = torch.randn(64, 8)
    fixed = diagnose(model, x, fix=True).fixed
    assert fixed[0].bias is None
    assert model[0].bias is not None
    torch.testing.assert_close(fixed.eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)


# Settings that need more than a model


def test_norms_of_several_processes_that_do_not_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()), torch.randn(24, 8)
    assert diagnose(model, x).alarms() == []
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    assert [f.kind for f in diagnose(model, x).alarms()] == ["not synced"]


def test_the_learning_rate_decides_what_is_too_long() -> None:
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()), torch.randn(64, 8)
    with torch.no_grad():
        model[0].weight.mul_(50 / model[0].weight.norm(dim=1, keepdim=True))
    assert diagnose(model, x).alarms() == []
    assert diagnose(model, x, lr=0.1).alarms() == []
    (told,) = diagnose(model, x, lr=1e-4).alarms()
    assert (told.kind, told.layer) == ("huge weights", "0")


def test_token_padding_is_seen_where_a_batch_norm_counts_it() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm, self.head = nn.Embedding(50, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.words(x).transpose(1, 2)).mean(2))

    torch.manual_seed(0)
    x = torch.randint(1, 50, (64, 20))
    assert "padding counts" not in {f.kind for f in diagnose(Words(), x).findings}
    padded = x * (torch.arange(20) < torch.randint(5, 21, (64, 1)))
    assert "padding counts" in {f.kind for f in diagnose(Words(), padded).findings}


# How it is told


def test_text_is_wrapped_between_words_and_coloured_if_asked() -> None:
    found = diagnose(*noisy_classifier(30.0), fix=True)
    for width in (60, 100):
        assert max(len(line) for line in found.text(width).splitlines()) <= width
    assert "\x1b[" not in str(found)
    assert "\x1b[1;3" in found.text(color=True)
    assert found.text(60).replace("\n", " ").split() == found.text(100).replace("\n", " ").split()


def test_healthy_says_what_would_have_been_noticed() -> None:
    found = diagnose(*faults_in_use.trained("mlp"))
    assert "Healthy" in str(found)
    assert "Would have noticed" in str(found)
    assert len(found.noticed) > 25
    assert len(diagnose(nn.BatchNorm1d(4), torch.randn(64, 4), synthetic=True).noticed) < len(found.noticed)


def test_notebooks_and_json() -> None:
    found = diagnose(*noisy_classifier(30.0), fix=True)
    assert "<table>" in found._repr_html_()
    told = found.to_dict()
    assert told["after"]["findings"] is not None
    assert "fixed" not in told
    assert told["evaluation"]["agreement"]["predictions"]["share"] >= 0


# The random set


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
