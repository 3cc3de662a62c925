"""Settings that only studies have: checked, part of the key of a run, and carried out by their own source alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from geonorm.lab import Recipe, Store
from geonorm.lab.ddp_team import Team
from geonorm.lab.orchestrate import orchestrate
from geonorm.lab.recipe import study_settings
from geonorm.nn._base import NormLayer
from studies.recipe import StudyRecipe, StudySource

ONE: dict[str, Any] = {"norms": ("bn",), "seeds": (0,), "epochs": 1, "batch_size": 512}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight_scale": -1}, "weight_scale > 0"),
        ({"weight_scale": "1"}, "weight_scale to be a number"),
        ({"weights_as_kappa": 0}, "weights_as_kappa above 0"),
        ({"phi_rate": 0}, "phi_rate above 0"),
        ({"phi_rate": 16, "optimizer": "adam"}, "only with the optimizer 'sgd'"),
        ({"probes": ("momentz",)}, "did you mean 'moments'"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_mistakes(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StudyRecipe(**fields)


def test_a_study_that_needs_no_setting_of_its_own_has_the_keys_of_a_recipe() -> None:
    """Stored results are found by these keys, as they were when these settings were fields of a recipe."""
    plain, study = Recipe(**ONE).runs(), StudyRecipe(**ONE).runs()
    assert [run.key for run in study] == [run.key for run in plain] == ["3838b18002abaae9"]
    assert (plain[0]["weight_scale"], plain[0]["probes"]) == (1.0, [])
    assert not study_settings(study[0].choices)
    changed = StudyRecipe(**ONE, weight_scale=2, weights_as_kappa=4, probes=("moments",)).runs()[0]
    assert study_settings(changed.choices) == ["weight_scale", "probes", "weights_as_kappa"]


def test_first_weights_are_scaled() -> None:
    source, found = StudySource(), []
    for scale in (1, 4):
        run = StudyRecipe(**ONE, weight_scale=scale).runs()[0]
        torch.manual_seed(0)
        found.append(source.model(run, source.task(run)).get_parameter("network.layers.0.weight"))
    torch.testing.assert_close(found[1], 4 * found[0], rtol=0, atol=0)


def test_only_their_own_source_carries_them_out(tmp_path: Path) -> None:
    """The lab itself would train without them, and store that under their key."""
    runs, store = StudyRecipe(**ONE, probes=("weight_norms",)).runs(), Store(tmp_path / "r.sqlite")
    refused = orchestrate(runs, store)
    assert "expected settings of a recipe (got probes, of a study)" in str(refused.failure)
    assert orchestrate(runs, store, StudySource()).left == 0
    assert store.curve(runs[0].key)[0]["weight_norms"]


@pytest.mark.slow
def test_workers_find_the_studies(tmp_path: Path) -> None:
    runs = StudyRecipe(**{**ONE, "seeds": (0, 1)}, probes=("weight_norms",)).runs()
    assert orchestrate(runs, Store(tmp_path / "r.sqlite"), StudySource(), workers=2).left == 0


def test_a_learned_phi_has_the_rate_of_one_without_bounds() -> None:
    """In a step of SGD it moves (dφ/dθ)² as far as the gradient by φ says, and φ starts where dφ/dθ = 1/4."""
    moved = {}
    for rate in (1.0, 16.0):
        run = StudyRecipe(
            **{**ONE, "norms": ("diffphi",)}, weight_decay=0.5, phi_rate=rate, momentum=0, lr=0.001
        ).runs()[0]
        assert ("phi_rate" in run.choices) == (rate != 1), "older results keep their keys"
        torch.manual_seed(0)
        source = StudySource()
        training = source.training(run, source.task(run), Team())
        for group in training.optimizer.param_groups:
            group["lr"] = group["lr"] * group.get("share", 1.0)
        layer = next(module for module in training.model.modules() if isinstance(module, NormLayer))
        assert layer.phi_offset is not None
        assert isinstance(layer.phi, torch.Tensor)
        (slope,) = torch.autograd.grad(layer.phi.sum(), layer.phi_offset)
        torch.testing.assert_close(slope, torch.full_like(slope, 0.25))
        layer.phi_offset.grad = 0.25 * torch.ones_like(slope)  # a gradient of 1 by φ
        before = layer.phi.detach().clone()
        training.optimizer.step()
        moved[rate] = (before - layer.phi.detach()) / run["lr"]
    torch.testing.assert_close(moved[1.0], torch.full_like(moved[1.0], 1 / 16), rtol=1e-3, atol=0)
    torch.testing.assert_close(moved[16.0], torch.ones_like(moved[16.0]), rtol=2e-3, atol=0)
