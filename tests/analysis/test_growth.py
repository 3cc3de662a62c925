"""Growth of weights against theory (T13, T14, T18), and a monitor that disturbs nothing and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import Growth, Monitor, invariance
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.small_training import WIDTH, seeded_randn, sgd, small_net, train_steps

NORMS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "batch": (lambda: nn.BatchNorm1d(WIDTH, eps=1e-12), True),
    "aug": (lambda: geonorm.AugBatchNorm1d(WIDTH, eps=1e-12), False),
    "layer": (lambda: nn.LayerNorm(WIDTH, eps=1e-12), False),
    "layer, joint with the bias": (lambda: nn.LayerNorm(WIDTH, eps=1e-12), True),
    "group": (lambda: nn.GroupNorm(2, WIDTH, eps=1e-12), False),
    "group, joint with the bias": (lambda: nn.GroupNorm(2, WIDTH, eps=1e-12), True),
}


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", NORMS)
def test_T13_growth_is_the_predicted_one_for_plain_sgd(name: str, decay: float) -> None:
    """‖W⁺‖² = (1 − ηλ)²‖W‖² + η²‖∇‖² in the norm's own unit: the growth itself, not only ‖W‖², to 1e-6."""
    make, bias = NORMS[name]
    model = small_net(make(), bias)
    optimizer = sgd(model, weight_decay=decay)
    with Monitor(model, optimizer, every=1) as monitor:
        train_steps(model, monitor, optimizer)
    records = monitor.result().records
    assert len(records) == 5
    for record in records:
        (found,) = record["weights"].values()
        assert found["unit"] == {"batch": "row", "aug": "row", "layer": "matrix", "group": "group"}[name.split(",")[0]]
        assert found["growth"] == pytest.approx(found["predicted"], rel=1e-6)
        assert abs(found["growth"]) > 1e-9
        before = found["norm"] ** 2 - found["growth"]
        assert found["norm"] ** 2 == pytest.approx(before + found["predicted"], rel=1e-9)


def test_T13_the_unit_matters() -> None:
    """LayerNorm with a bias: the weight alone does not grow as predicted; weight and bias together do."""
    model = small_net(nn.LayerNorm(WIDTH, eps=1e-12), bias=True)
    optimizer = sgd(model)
    (unit,) = invariance(model, seeded_randn(16, 4)).units
    assert unit.bias == "0.bias"
    both, alone = (Monitor(model, optimizer, every=1, units=[chosen]) for chosen in (unit, unit._replace(bias=None)))
    train_steps(model, both, optimizer, steps=1)
    alone.step()
    gaps = []
    for monitor in (both, alone):
        (found,) = monitor.result().records[0]["weights"].values()
        gaps.append(abs(found["growth"] / found["predicted"] - 1))
    assert gaps[0] < 1e-6
    assert gaps[1] > 1e-2


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, 0.1),
    ],
)
def test_T13_nothing_is_predicted_for_other_optimizers(make) -> None:
    model = small_net()
    optimizer = make(model.parameters())
    with Monitor(model, optimizer, every=1) as monitor:
        train_steps(model, monitor, optimizer, steps=2)
    found = monitor.result().records[1]["weights"]["0.weight"]
    assert found["predicted"] is None
    assert found["growth"] != 0
    assert (found["effective_rate"] is None) == isinstance(optimizer, torch.optim.Adam)


def test_effective_rate_is_the_rate_over_the_square_of_the_rows() -> None:
    model = small_net()
    with torch.no_grad():
        model[0].weight.div_(model[0].weight.norm(dim=1, keepdim=True)).mul_(4)
    optimizer = sgd(model, lr=1e-9)
    with Monitor(model, optimizer) as monitor:
        train_steps(model, monitor, optimizer, steps=1)
    found = monitor.result().records[0]["weights"]["0.weight"]
    assert found["effective_rate"] == pytest.approx(1e-9 / 16)
    assert (found["norm"], found["smallest"], found["largest"]) == pytest.approx((4 * WIDTH**0.5, 4, 4))


def noisy_training(momentum: float, steps: int, decay: float = 0.05, rate: float = 0.1) -> Growth:
    """A linear layer under BatchNorm with targets that are noise: the gradient has no drift, only noise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 4, bias=False), nn.BatchNorm1d(4, eps=1e-12, affine=False)).double()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=momentum, weight_decay=decay)
    with Monitor(model, optimizer, every=5) as monitor:
        for _ in range(steps):
            optimizer.zero_grad()
            output = model(torch.randn(32, 16, dtype=torch.float64))
            (output * torch.randn_like(output)).sum().backward()
            optimizer.step()
            monitor.step()
    return monitor.result()


@pytest.mark.parametrize("momentum", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_T18_weight_decay_and_growth_balance_where_the_formula_says(momentum: float) -> None:
    """‖w‖⁴ → ηE‖g̃‖²/(2λ(1 − m)) within 5 %, so the effective rate → √(2ηλ(1 − m))/‖g̃‖, from a start far away."""
    found = noisy_training(momentum, steps=1000)
    late = [record["weights"]["0.weight"] for record in found.records[len(found.records) // 2 :]]
    size = sum(entry["norm"] ** 4 for entry in late) / len(late)
    predicted = sum(entry["equilibrium"] ** 4 for entry in late) / len(late)
    assert size == pytest.approx(predicted, rel=0.05)
    assert found.records[0]["weights"]["0.weight"]["norm"] < 0.7 * late[-1]["norm"]


def test_no_balance_without_decay() -> None:
    found = noisy_training(0.0, steps=20, decay=0.0)
    assert found.records[-1]["weights"]["0.weight"]["equilibrium"] is None


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


def test_only_every_nth_step_is_recorded_and_others_have_no_hooks() -> None:
    model = small_net()
    optimizer = sgd(model)
    with Monitor(model, optimizer, every=3) as monitor:
        train_steps(model, monitor, optimizer, steps=8)
        assert not model[1]._forward_pre_hooks
        assert not optimizer._optimizer_step_pre_hooks
    assert [record["step"] for record in monitor.result().records] == [0, 3, 6]


def test_training_goes_as_without_a_monitor() -> None:
    """Bit by bit, dropout included; and afterwards nothing of it is left on model or optimizer."""
    ends = []
    for watched in (True, False):
        model = small_net()
        model.insert(3, nn.Dropout(0.3))
        optimizer = sgd(model, momentum=0.9)
        torch.manual_seed(5)
        if watched:
            with Monitor(model, optimizer, every=2) as monitor:
                train_steps(model, monitor, optimizer)
        else:
            train_steps(model, None, optimizer)
        assert not any(module._forward_pre_hooks for module in model.modules())
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
    model = small_net().eval()
    with assert_model_unchanged(model), pytest.warns(UserWarning, match="evaluation"):
        Monitor(model).close()


def test_evaluation_between_steps_does_not_count() -> None:
    model = small_net()
    optimizer = sgd(model)
    monitor = Monitor(model, optimizer)
    model.eval()(seeded_randn(8, 4) + 100)
    model.train()
    train_steps(model, monitor, optimizer, steps=1)
    assert monitor.result().records[0]["norms"]["1"]["beta_gap"] < 10


def test_a_result_is_a_table_a_dict_and_a_picture() -> None:
    model = small_net()
    optimizer = sgd(model, weight_decay=0.01)
    with Monitor(model, optimizer, every=1) as monitor:
        train_steps(model, monitor, optimizer)
    found = monitor.result()
    assert "0.weight" in found.table()
    assert "lag of mean" in found.table()
    assert json.loads(json.dumps(found.to_dict()))["records"] == found.records
    assert len(found.plot().axes) == 3
    assert Growth([]).plot().axes
    assert Growth([]).rows() == []
