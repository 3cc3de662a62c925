"""Gaps, lag and learned parameters of norms during training (T14)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import Monitor
from helpers.small_training import WIDTH, seeded_randn, sgd, small_net, train_steps


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_T14_gaps_are_those_of_the_batch_and_only_those_at_length_one_are_identifiable(scale: float) -> None:
    """Rescaling the weight moves the raw gaps anywhere; loss, γ, β and the gaps with ‖W‖ = 1 stay."""
    model = small_net()
    with torch.no_grad():
        model[0].weight.mul_(scale)
        model[1].weight.copy_(torch.linspace(0.5, 1.5, WIDTH))
        model[1].bias.copy_(torch.linspace(-1, 1, WIDTH))
        x = seeded_randn(16, 4, seed=0)
        y = x @ model[0].weight.T
        running = model[1].running_mean.clone(), model[1].running_var.clone()
        lengths = model[0].weight.norm(dim=1)
        gamma, beta = model[1].weight.clone(), model[1].bias.clone()
    optimizer = sgd(model, lr=0.0)
    with Monitor(model, optimizer) as monitor:
        train_steps(model, monitor, optimizer, steps=1)
    found = monitor.result().records[0]["norms"]["1"]
    mean, var = y.mean(0), y.var(0, correction=0)
    for which, m, v in (("", mean, var), ("_unit", mean / lengths, var / lengths**2), ("_running", *running)):
        gap = (gamma**2 - v).abs()
        assert found[f"gamma_gap{which}"] == pytest.approx(float(gap.mean()))
        assert found[f"gamma_share{which}"] == pytest.approx(float((gap / (gamma**2 + v)).mean()))
        assert found[f"beta_gap{which}"] == pytest.approx(float((beta - m).abs().mean()))
    assert found["lag_mean"] == pytest.approx(float(((running[0] - mean) ** 2 / var).mean().sqrt()))
    assert found["lag_var"] == pytest.approx(float((running[1] / var).log().abs().mean()))


def test_a_stale_running_mean_shows_as_lag() -> None:
    lags = []
    for offset in (0.0, 50.0):
        model = small_net()
        train_steps(model, None, sgd(model, lr=0.0), steps=50)
        model[1].running_mean += offset
        optimizer = sgd(model)
        with Monitor(model, optimizer) as monitor:
            train_steps(model, monitor, optimizer, steps=1)
        lags.append(monitor.result().records[0]["norms"]["1"]["lag_mean"])
    assert lags[0] < 1 < 20 < lags[1]


def test_learned_phi_and_alpha_are_followed() -> None:
    model = small_net(geonorm.AugBatchNorm1d(WIDTH, learn_phi=True, learn_alpha=True))
    optimizer = sgd(model, lr=0.5)
    with Monitor(model, optimizer, every=1) as monitor:
        train_steps(model, monitor, optimizer, steps=4)
    steps, phi = monitor.result().series("norms", "1", "phi")
    assert steps == [0, 1, 2, 3]
    assert phi[-1] == pytest.approx(model[1].phi.mean().item())
    assert phi[0] != phi[-1]
    last = monitor.result().records[-1]["norms"]["1"]
    assert (last["alpha_min"], last["alpha_max"]) == pytest.approx(
        (model[1].alpha.min().item(), model[1].alpha.max().item())
    )


def test_gaps_at_length_1_do_not_depend_on_the_size_of_weight_or_bias() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).double(), torch.randn(16, 4).double() + 1
    found = []
    for _ in range(2):
        with Monitor(model) as monitor:
            model(x)
            monitor.step()
        found.append(monitor.result().records[0]["norms"]["1"]["beta_gap_unit"])
        with torch.no_grad():
            model[0].weight.mul_(3)
            model[0].bias.add_(2)
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_lines_of_a_linear_have_no_unit() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    with Monitor(model) as monitor:
        model(torch.randn(8, 6, 4))
        monitor.step()
    assert monitor.result().records[0]["norms"]["1"]["beta_gap_unit"] is None
