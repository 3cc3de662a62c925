"""`param_groups`: no norm parameter, bias or φ is decayed, and nothing is lost."""

import pytest
import torch
from torch import nn

import geonorm
from geonorm.introspect.layouts import is_norm
from helpers.slow_cases import slow_except
from helpers.third_party_models import THIRD_PARTY_MODELS

ALL_LEARNED = "aug(phi=1.5, learn_phi=true, learn_alpha=true)"


@pytest.mark.parametrize("case", THIRD_PARTY_MODELS, ids=lambda case: case.name)
@pytest.mark.parametrize("spec", slow_except([None, ALL_LEARNED], [None, ALL_LEARNED, "pop", "wn"]))
def test_only_weights_are_decayed(case, spec: str | None) -> None:
    model = case.make()
    if spec:
        geonorm.convert(model, spec)
    groups = geonorm.param_groups(model, 0.1, phi_lr=0.5)
    ids = [id(p) for group in groups for p in group["params"]]
    assert len(ids) == len(set(ids))
    assert set(ids) == {id(p) for p in model.parameters()}
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    assert decayed
    for name, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if is_norm(module) or "bias" in key or "phi" in key or key in ("original0", "alpha", "mean_scale"):
                assert id(parameter) not in decayed, f"{name}.{key}"
    learned = [p for n, p in model.named_parameters() if n.endswith("phi_offset")]
    phi = next((group for group in groups if group["name"] == "phi"), None)
    assert bool(learned) == (phi is not None)
    if phi is not None:
        assert (phi["lr"], len(phi["params"])) == (0.5, len(learned))
    torch.optim.AdamW(groups, lr=0.1)


def test_without_a_learning_rate_for_phi() -> None:
    groups = geonorm.param_groups(nn.Sequential(nn.Linear(2, 2), geonorm.AugBatchNorm1d(2, learn_phi=True)), 0.1)
    assert [group["name"] for group in groups] == ["decay", "no_decay"]


def test_frozen_and_tied_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.LayerNorm(2))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    groups = geonorm.param_groups(model, 0.1)
    assert [len(group["params"]) for group in groups] == [1, 3]
    for weight_decay in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="weight_decay >= 0"):
            geonorm.param_groups(model, weight_decay)
    with pytest.raises(ValueError, match="phi_lr >= 0"):
        geonorm.param_groups(model, 0.1, phi_lr=-1.0)


def test_prints_as_a_table() -> None:
    lines = str(geonorm.param_groups(THIRD_PARTY_MODELS[0].make(), 1e-4)).splitlines()
    assert lines[0].split()[0] == "group"
    assert "..." in lines[-1]
