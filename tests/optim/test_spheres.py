"""`project_scale_invariant`: the table says what trying finds, and a radius changes no output."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import invariance
from geonorm.optim import SphereSGD, project_scale_invariant
from helpers.assert_model_unchanged import assert_model_unchanged


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net(norm: nn.Module | None = None, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6, eps=1e-12) if norm is None else norm
    return nn.Sequential(nn.Linear(4, 6, bias=bias), norm, nn.ReLU(), nn.Linear(6, 3)).double()


@pytest.mark.parametrize("norm", [lambda: nn.BatchNorm1d(6), lambda: nn.LayerNorm(6), lambda: nn.GroupNorm(2, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_table_says_what_trying_finds(norm, bias: bool) -> None:
    model = net(norm(), bias)
    assert project_scale_invariant(model).parts == project_scale_invariant(model, randn(16, 4)).parts
    units = invariance(model, randn(16, 4)).units
    assert project_scale_invariant(model, units=units).parts == project_scale_invariant(model).parts


def test_finding_changes_nothing_and_a_radius_changes_no_output() -> None:
    model = net()
    x = randn(16, 4)
    with assert_model_unchanged(model):
        project_scale_invariant(model, x)
    with geonorm.no_stat_update():
        before = model(x)
        groups = project_scale_invariant(model, x, radius=2.0)
        torch.testing.assert_close(model(x), before, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model[0].weight.detach().norm(dim=1), torch.full((6,), 2.0, dtype=torch.float64))
    model[0].weight.data.mul_(3)
    groups.project()  # for any other optimizer
    torch.testing.assert_close(model[0].weight.detach().norm(dim=1), torch.full((6,), 2.0, dtype=torch.float64))


def test_weights_without_effect_yet_are_on_spheres_by_the_table() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    nn.init.zeros_(model[2].weight)
    with pytest.warns(UserWarning, match="no effect"):
        groups = project_scale_invariant(model, torch.randn(16, 4))
    assert [part.parameter for part in groups.parts] == ["0.weight"]


def test_a_bias_that_is_frozen_later_does_not_stop_its_weight() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)), torch.randn(16, 4)
    optimizer = SphereSGD(project_scale_invariant(model), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    step()
    model[0].bias.requires_grad_(False)
    weight, bias = model[0].weight.detach().clone(), model[0].bias.clone()
    step()
    assert not torch.equal(model[0].weight, weight)
    assert torch.equal(model[0].bias, bias)
    model[0].bias.requires_grad_(True)
    length = model[0].weight.square().sum() + model[0].bias.square().sum()
    step()
    torch.testing.assert_close(model[0].weight.square().sum() + model[0].bias.square().sum(), length)
