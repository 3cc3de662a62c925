"""Robustness: known answers on a linear model, modes, odd batches and errors."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import geonorm
from geonorm.analysis import curvature, prune, rescaling, robustness
from geonorm.robust import wilson
from helpers.assert_model_unchanged import assert_model_unchanged


def margins() -> tuple[nn.Module, Tensor, Tensor]:
    """Scores (t, −t) with t = x₁ − x₂: sample i has margin t = i/100 for label 0, and an attack of size e takes 2e."""
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    t = torch.arange(1, 41) / 100 - 0.005
    return model, torch.stack([0.5 + t / 2, 0.5 - t / 2], 1), torch.zeros(40, dtype=torch.long)


def test_attacks_on_a_linear_model_take_exactly_their_share() -> None:
    model, x, labels = margins()
    found = robustness(model, (x, labels), ("clean", "fgsm", "bim", "pgd"), eps=0.05, step=0.02)
    assert found["clean"] == wilson(40, 40)
    with pytest.raises(KeyError, match="noise"):
        found["noise"]
    for test in ("fgsm", "bim", "pgd"):
        assert found[test] == wilson(30, 40), test  # margins up to 0.1 are lost
    short = robustness(model, (x, labels), ("bim",), eps=0.05, step=0.01, steps=2)
    assert short["bim"] == wilson(36, 40)


def test_noise_on_a_linear_model_takes_its_share() -> None:
    """t/(std·√2) deviations away from the border, sample by sample."""
    model, x, labels = margins()
    x, labels = x.repeat(200, 1), labels.repeat(200)
    found = robustness(model, (x, labels), ("noise",), noise=0.2, confidence=0.999)
    expected = sum(NormalDist().cdf(float(t) / (0.2 * 2**0.5)) for t in x[:40, 0] - x[:40, 1]) / 40
    assert found["noise"].low < expected < found["noise"].high
    again = robustness(model, (x, labels), ("noise",), noise=0.2, confidence=0.999)
    assert again == found
    assert robustness(model, (x, labels), ("noise",), noise=0.2, seed=1, confidence=0.999) != found


def net(eps: float = 1e-5, norm: str = "batch") -> nn.Sequential:
    torch.manual_seed(0)
    norms = {
        "batch": lambda: nn.BatchNorm2d(6, eps=eps),
        "aug": lambda: geonorm.AugBatchNorm2d(6, eps=eps),
        "group": lambda: nn.GroupNorm(2, 6, eps=eps),
    }
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), norms[norm](), nn.ReLU(), nn.Conv2d(6, 6, 3), norms[norm](), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


def data(samples: int = 24, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(samples, 2, 8, 8, generator=generator), torch.arange(samples) % 3


@pytest.mark.parametrize("tests", [("clean", "noise", "fgsm", "bim"), ("pgd",)])
def test_the_model_is_left_as_it_was(tests) -> None:
    model = net().train()
    model[1].eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    with assert_model_unchanged(model):
        robustness(model, data(), tests, steps=2)


class TestEnemies:
    def test_running_statistics_are_used_whatever_the_mode(self) -> None:
        model = net().train()
        model(data()[0])
        model[1].running_mean.add_(1)
        assert robustness(model, data()) == robustness(model.eval(), data())

    def test_one_sample_and_empty_batches_between(self) -> None:
        x, y = data()
        found = robustness(net(), [(x[:1], y[:1]), (x[:0], y[:0]), (x[1:4], y[1:4])], ("clean",))
        assert found["clean"].total == 4

    def test_nan_scores_are_wrong(self) -> None:
        model = net()
        model[8].bias.data[0] = math.nan
        found = robustness(model, data(), ("clean", "bim"), steps=1)
        assert found["clean"].correct == found["bim"].correct == 0

    def test_half_precision_frozen_parametrized_and_no_norms(self) -> None:
        model = nn.Sequential(nn.Flatten(), parametrizations.weight_norm(nn.Linear(128, 3))).requires_grad_(False)
        x, y = data()
        found = robustness(model.to(torch.bfloat16), (x.to(torch.bfloat16), y), steps=2)
        assert len(found.trials) == 4
        model = model.float()
        with assert_model_unchanged(model):
            weights = rescaling(model, (x, y)).weights
        assert weights == ["1.parametrizations.weight.original1"]
        with pytest.raises(ValueError, match="scale-invariant weights to rescale"):
            rescaling(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), (x, y))

    @pytest.mark.parametrize(
        ("batches", "options", "error", "words"),
        [
            ([], {}, ValueError, "at least one batch"),
            (data()[0], {}, TypeError, r"\(input, labels\)"),
            (data(), {"tests": ("cw",)}, ValueError, "expected tests out of"),
            (data(), {"tests": ()}, ValueError, "expected tests out of"),
            ((data()[0] * 2, data()[1]), {}, ValueError, "Standardize"),
        ],
    )
    def test_errors_say_what_to_do(self, batches, options, error, words: str) -> None:
        model = net()
        with assert_model_unchanged(model), pytest.raises(error, match=words):
            robustness(model, batches, **options)


def test_results_are_tables_dicts_and_pictures() -> None:
    found = robustness(net(), data(), steps=2)
    assert "bim" in found.table()
    assert found.to_dict()["trials"][0]["accuracy"]["total"] == 24
    assert found.plot().axes
    scaled = rescaling(net(), data(), (10.0,), steps=2)
    assert "under BIM" in scaled.table()
    assert scaled.to_dict()["cases"][0]["factor"] == 1.0
    assert len(scaled.plot().axes) == 2


def test_noise_does_not_depend_on_the_other_tests() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).eval()
    x = torch.rand(400, 4)
    batches = [(x[:200], model(x[:200]).argmax(1)), (x[200:], model(x[200:]).argmax(1))]
    found = [
        robustness(model, batches, tests, backend="own")["noise"].correct
        for tests in (("noise",), ("pgd", "noise"), ("noise", "pgd"))
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] != robustness(model, batches, ("noise",), seed=1)["noise"].correct


def test_models_that_give_more_than_scores_are_refused_in_words() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            scores = self.norm(self.linear(x))
            return scores, x

    batch = torch.rand(8, 4), torch.arange(8) % 3
    for diagnostic in (robustness, rescaling, prune, curvature):
        with pytest.raises(TypeError, match="got tuple"):
            diagnostic(Two(), batch)
    for diagnostic in (robustness, rescaling, prune):
        with pytest.raises(ValueError, match="labels from 0 to 2"):
            diagnostic(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), (batch[0], batch[1] + 1))
