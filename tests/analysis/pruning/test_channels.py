"""A mask leaves out the channels that it names, and nothing else."""

from __future__ import annotations

import torch
from torch import nn

from geonorm.analysis import Drop, prune
from geonorm.analysis.pruning.channels import masked
from helpers.float64_classifier import seeded_randn64
from helpers.prunable_net import prunable_net


def test_a_mask_is_what_it_says() -> None:
    model = prunable_net().eval()
    x = seeded_randn64(5, 6)
    plain = model[1](model[0](x))
    with masked(model, [Drop("1", 3), Drop("1", 0, 7)]):
        seen = model[1](model[0](x))
    expected = plain.clone()
    expected[:, 3], expected[:, 0] = 0, plain[:, 7]
    assert torch.equal(seen, expected)
    assert torch.equal(model[1](model[0](x)), plain)


def test_compiled_models_are_masked_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        model[1].bias.normal_()
    x = torch.randn(64, 4)
    batch = (x, model(x).argmax(1))
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    plain, found = (prune(m, batch, (0.0, 0.8), ("gamma",)) for m in (model, compiled))
    assert plain.trials[1].accuracy.share < 1
    assert [trial.accuracy for trial in found.trials] == [trial.accuracy for trial in plain.trials]
