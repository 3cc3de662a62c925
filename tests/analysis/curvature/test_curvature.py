"""Curvature against exact Hessians, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import geonorm
from geonorm.analysis import curvature, kappa_slopes
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.float64_classifier import classifier, labelled_batch, seeded_randn64


def exact_hessian(model: nn.Module, batches: list[tuple[Tensor, Tensor]], names: list[str]) -> Tensor:
    """By torch.func.hessian of the flattened parameters."""
    parameters = dict(model.named_parameters())
    flat = torch.cat([parameters[name].detach().flatten() for name in names])
    sizes = [parameters[name].numel() for name in names]

    def value(vector: Tensor) -> Tensor:
        own = {n: part.view_as(parameters[n]) for n, part in zip(names, vector.split(sizes), strict=True)}
        losses = [
            nn.functional.cross_entropy(torch.func.functional_call(model, own, (x,)), y, reduction="none")
            for x, y in batches
        ]
        return torch.cat(losses).mean()

    return torch.autograd.functional.hessian(value, flat)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ["bn", "aug", "pop", "ln"])
def test_eigenvalues_are_those_of_the_exact_hessian(norm: str, training: bool) -> None:
    norms = {
        "bn": nn.BatchNorm1d(5),
        "aug": geonorm.AugBatchNorm1d(5, phi=1.5),
        "pop": geonorm.PopNorm1d(5),
        "ln": nn.LayerNorm(5),
    }
    model, batches = classifier(norms[norm]).train(training), [labelled_batch(12), labelled_batch(7)]
    names = [name for name, _ in model.named_parameters()]
    found = curvature(model, batches, tolerance=1e-9, steps=100)
    with geonorm.no_stat_update():
        expected = torch.linalg.eigvalsh(exact_hessian(model, batches, names))
        last = torch.linalg.eigvalsh(exact_hessian(model, batches, ["3.weight", "3.bias"]))
    assert found.blocks[0].largest == pytest.approx(float(expected[-1]), rel=1e-6)
    assert found.blocks[0].smallest == pytest.approx(float(expected[0]), rel=1e-6)
    assert found.lipschitz == pytest.approx(float(expected.abs().max()), rel=1e-6)
    block = next(block for block in found.blocks if block.name == "3")
    assert block.largest == pytest.approx(float(last[-1]), rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    model = nn.Sequential(classifier(), nn.Dropout(0.5), nn.Linear(3, 3).double()).train(training)
    model[0][1].eval()
    model[2].weight.grad = torch.ones_like(model[2].weight)
    with assert_model_unchanged(model):
        first = curvature(model, labelled_batch(), steps=5)
    with assert_model_unchanged(model):
        again = curvature(model, labelled_batch(), steps=5)
    assert first.blocks[0].largest == again.blocks[0].largest


def test_dropout_has_one_mask_for_all_products() -> None:
    """With new masks in each product there would be no matrix, and no convergence."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    found = curvature(model, labelled_batch(), tolerance=1e-8, steps=200, where="0")
    assert found.blocks[0].error <= 1e-8 * found.lipschitz


class TestEnemies:
    def test_frozen_shared_and_parametrized_weights(self) -> None:
        shared = nn.Linear(4, 4).double()
        normed = parametrizations.weight_norm(nn.Linear(4, 3).double())
        model = nn.Sequential(shared, nn.Tanh(), shared, normed)
        shared.bias.requires_grad_(False)
        with assert_model_unchanged(model):
            found = curvature(model, labelled_batch(), tolerance=1e-9)
        assert [block.name for block in found.blocks] == ["(all)", "0", "3"]
        assert found.blocks[1].parameters == 16
        assert found.blocks[2].parameters == 3 + 12 + 3
        assert found.blocks[0].parameters == 16 + 18

    def test_one_sample_and_a_model_without_norms(self) -> None:
        found = curvature(nn.Sequential(nn.Linear(4, 3)).double(), labelled_batch(1))
        assert found.blocks[0].variance == 0.0
        assert found.blocks[0].condition is None

    def test_a_loss_without_curvature(self) -> None:
        model = nn.Sequential(nn.Linear(4, 3, bias=False)).double()
        found = curvature(model, labelled_batch(), lambda output, target: output.sum(1))
        assert found.lipschitz == 0.0

    def test_nan_is_told(self) -> None:
        x, y = labelled_batch()
        x[0, 0] = math.nan
        found = curvature(classifier(), (x, y))
        assert math.isnan(found.blocks[0].variance)
        assert math.isnan(found.blocks[0].largest)
        assert found.to_dict()["blocks"][0]["largest"] is None

    @pytest.mark.parametrize(
        ("make", "batches", "options", "error", "words"),
        [
            (classifier, [], {}, ValueError, "at least one batch"),
            (classifier, seeded_randn64(4, 4), {}, TypeError, r"\(input, target\)"),
            (classifier, labelled_batch(), {"loss": nn.functional.cross_entropy}, ValueError, "reduction='none'"),
            (classifier, labelled_batch(), {"how": "fisher"}, ValueError, "expected how"),
            (classifier, labelled_batch(), {"how": "vmap"}, ValueError, "model.eval"),
            (lambda: classifier().half(), labelled_batch(), {}, TypeError, "float32 or float64"),
            (lambda: classifier().requires_grad_(False), labelled_batch(), {}, ValueError, "all are frozen"),
            (classifier, labelled_batch(), {"where": "9"}, ValueError, "matches no module"),
        ],
    )
    def test_errors_say_what_to_do(self, make, batches, options, error, words: str) -> None:
        model = make()
        with assert_model_unchanged(model), pytest.raises(error, match=words):
            curvature(model, batches, **options)


def test_results_draw_themselves() -> None:
    found = curvature(classifier(), labelled_batch())
    assert "condition of inputs" in found.table()
    assert len(found.plot().axes) == 3
    slopes = kappa_slopes(classifier(geonorm.PopNorm1d(5), nn.ReLU()), labelled_batch(), kappas=(1, 2))
    assert "λ max, κ=2" in slopes.table()
    assert slopes.plot().axes
    assert slopes.to_dict()["slopes"][0]["layer"] == "3"
