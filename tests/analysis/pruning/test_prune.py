"""Pruning: planted duplicates and dead channels, and T15's controls."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import Drop, prune
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.float64_classifier import seeded_randn64
from helpers.prunable_net import prunable_net


def data(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Labels are what the model says, so that every change of its mind counts."""
    x = seeded_randn64(200, 6, seed=1)
    with torch.no_grad():
        return x, model.eval()(x).argmax(1)


def duplicate(model: nn.Sequential, first: int, second: int) -> None:
    """Make one channel of the first hidden layer a copy of another."""
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias, model[1].weight, model[1].bias, *model[1].buffers()):
            if tensor.dim():
                tensor[second] = tensor[first]


def accuracies(found, rule: str) -> list[float]:
    return [trial.accuracy.share for trial in found.trials if trial.rule == rule]


def test_a_planted_duplicate_goes_first_and_takes_nothing_along() -> None:
    model = prunable_net()
    duplicate(model, 2, 5)
    found = prune(model, data(model), (0.0, 1 / 16), ("pairs", "outputs", "random_pairs"))
    for rule in ("pairs", "outputs"):
        assert found.orders[rule] == [Drop("1", 5, 2)]
        assert accuracies(found, rule) == [1.0, 1.0]
    assert found.pairs[0] == ("1", 2, 5, 0.0, pytest.approx(1.0))


def test_planted_dead_channels_go_first_by_gamma() -> None:
    model = prunable_net()
    with torch.no_grad():
        for norm, channels in ((model[1], [1, 6]), (model[4], [3])):
            norm.weight[channels], norm.bias[channels] = 0.0, 0.0
    found = prune(model, data(model), (0.0, 3 / 16, 0.5), ("gamma", "random"))
    assert {drop[:2] for drop in found.orders["gamma"][:3]} == {("1", 1), ("1", 6), ("4", 3)}
    assert accuracies(found, "gamma")[:2] == [1.0, 1.0]
    assert accuracies(found, "random")[1] < 1.0
    sizes = [
        float((model[1] if layer == "1" else model[4]).weight[i].detach().abs())
        for layer, i, _ in found.orders["gamma"]
    ]
    assert sizes == sorted(sizes)


def test_T15_equal_gamma_and_beta_are_not_equal_functions() -> None:
    """All channels on the same sphere: neighbours in (γ, β) are no more alike than any pair, and merging them hurts."""
    model = prunable_net(16)
    for norm in (model[1], model[4]):
        norm.weight.data = 1 + 1e-6 * torch.rand(16).double()
        norm.bias.data = 1e-6 * torch.rand(16).double()
    found = prune(model, data(model), (0.0, 0.25))
    assert found.pairs[0].distance < 1e-5
    assert abs(found.similarity["nearest"] - found.similarity["random"]) < 0.1
    assert found.similarity["nearest"] < 0.6
    assert accuracies(found, "pairs")[1] < 0.95
    assert abs(accuracies(found, "pairs")[1] - accuracies(found, "random_pairs")[1]) < 0.2


def test_T15_the_control_finds_what_the_proposal_misses() -> None:
    """Two copies, one with γ and β that differ a little: farther apart in (γ, β) than strangers, but alike."""
    model = prunable_net(16)
    for norm in (model[1], model[4]):
        norm.weight.data.fill_(1.0)
        norm.bias.data.fill_(0.0)
    duplicate(model, 2, 5)
    model[1].weight.data[5] += 0.01
    found = prune(model, data(model), (0.0, 1 / 32), ("pairs", "outputs"))
    assert found.orders["outputs"] == [Drop("1", 5, 2)]
    assert found.orders["pairs"] != [Drop("1", 5, 2)]
    assert accuracies(found, "outputs")[1] > accuracies(found, "pairs")[1]


@pytest.mark.parametrize("rule", ["gamma", "pairs", "outputs", "random", "random_pairs"])
def test_every_rule_leaves_a_channel_and_nobody_out_who_is_needed(rule: str) -> None:
    model = prunable_net(4)
    found = prune(model, data(model), (1.0,), (rule,))
    drops = found.orders[rule]
    gone = [(drop.layer, drop.channel) for drop in drops]
    assert len(set(gone)) == len(gone) == found.trials[0].channels
    for layer in ("1", "4"):
        assert 1 <= 4 - sum(1 for name, _ in gone if name == layer) < 4
    assert not {(drop.layer, drop.into) for drop in drops} & set(gone)
    again = prune(model, data(model), (1.0,), (rule,))
    assert again.orders == found.orders


@pytest.mark.parametrize("norm", ["bn", "augbn(phi=1.5)"])
def test_the_model_is_left_as_it_was(norm: str) -> None:
    model = prunable_net(norm=norm)
    batch = data(model)
    model.train()
    model[1].eval()
    with assert_model_unchanged(model):
        prune(model, batch, (0.0, 0.2))


class TestEnemies:
    def test_shared_norms_half_precision_one_channel_and_one_sample(self) -> None:
        norm = nn.BatchNorm1d(6)
        model = nn.Sequential(nn.Linear(6, 6), norm, nn.Linear(6, 6), norm, nn.Linear(6, 1), nn.BatchNorm1d(1))
        model = model.to(torch.bfloat16)
        x = seeded_randn64(1, 6).to(torch.bfloat16)
        found = prune(model, (x, torch.zeros(1, dtype=torch.long)), (0.0, 1.0))
        assert found.channels == 7
        assert max(trial.channels for trial in found.trials) == 5

    def test_nan_counts_as_wrong(self) -> None:
        model = prunable_net()
        batch = data(model)
        model[6].bias.data.fill_(math.nan)
        assert accuracies(prune(model, batch, (0.0,), ("gamma",)), "gamma") == [0.0]

    def test_frozen_parameters_do_not_matter(self) -> None:
        model = prunable_net().requires_grad_(False)
        assert prune(model, data(model), (0.0, 0.1), ("gamma",)).trials[0].accuracy.share == 1.0

    @pytest.mark.parametrize(
        ("make", "options", "words"),
        [
            (lambda: nn.Sequential(nn.Linear(6, 3)).double(), {}, "batch norms with γ and β"),
            (prunable_net, {"fractions": (1.5,)}, "from 0 to 1"),
            (prunable_net, {"fractions": ()}, "from 0 to 1"),
            (prunable_net, {"rules": ("l1",)}, "expected rules out of"),
        ],
    )
    def test_errors_say_what_to_do(self, make, options, words: str) -> None:
        model = make()
        with assert_model_unchanged(model), pytest.raises(ValueError, match=words):
            prune(model, (seeded_randn64(8, 6), torch.zeros(8, dtype=torch.long)), **options)
        with pytest.raises(ValueError, match="at least one batch"):
            prune(prunable_net(), [])


def test_a_result_is_a_table_a_dict_and_a_picture() -> None:
    model = prunable_net()
    found = prune(model, data(model), (0.0, 0.2))
    assert "neighbours in (γ, β)" in found.table()
    assert found.to_dict()["orders"]["gamma"][0].keys() == {"layer", "channel", "into"}
    assert found.plot().axes
