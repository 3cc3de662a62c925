"""T19: the size of scale-invariant weights does not matter for robustness."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import rescaling
from helpers.assert_model_unchanged import assert_model_unchanged


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


@pytest.mark.parametrize("norm", ["batch", "aug", "group"])
def test_T19_the_size_of_invariant_weights_changes_nothing_without_eps(norm: str) -> None:
    model = net(norm=norm)
    with assert_model_unchanged(model):
        found = rescaling(model, [data(), data(8, 2)], eps=0.3, step=0.1)
    assert found.weights == ["0.weight", "3.weight"]
    plain, *others = [case for case in found.cases if not case.has_eps]
    assert plain.factor == 1.0
    for case in others:
        assert case.scores < 1e-9
        assert case.gradient < 1e-9
        assert case.attacked == plain.attacked
        assert case.clean == plain.clean
    assert plain.attacked.correct < plain.clean.correct  # the attack does something


def test_T19_with_eps_small_weights_feel_it_and_large_ones_do_not() -> None:
    """What remains is eps against the variance: changed by eps(1/f² − 1), so 100 times as much for 0.1 as for 10."""
    found = {case.factor: case for case in rescaling(net(), data()).cases if case.has_eps}
    assert found[1.0].gradient == 0.0
    assert 1e-6 < found[10.0].scores < 1e-3
    assert found[0.1].scores / found[10.0].scores == pytest.approx(100, rel=0.1)


def test_T19_the_head_is_not_invariant() -> None:
    """A control: scaling the head, which no norm follows, does change scores and gradients."""
    model = net()
    unit = geonorm.analysis.invariance(model, data()).units[0]._replace(parameter="8.weight", bias=None)
    found = rescaling(model, data(), (10.0,), units=[unit])
    assert all(case.gradient > 0.5 for case in found.cases if case.factor != 1)


def test_factors() -> None:
    with pytest.raises(ValueError, match="factors above 0"):
        rescaling(net(), data(), (0.0,))
