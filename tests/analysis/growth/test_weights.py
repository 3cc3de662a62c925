"""Growth of scale-invariant weights against theory (T13, T18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import Growth, Monitor, invariance
from helpers.small_training import WIDTH, records_of_steps, seeded_randn, sgd, small_net, train_steps

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


@pytest.mark.parametrize("closure", [True, False])
def test_the_prediction_is_of_the_step_itself_with_a_closure_too(closure: bool) -> None:
    records = records_of_steps(lambda p: torch.optim.SGD(p, lr=0.1), closure=closure)
    for record in records:
        entry = record["weights"]["0.weight"]
        assert entry["predicted"] == pytest.approx(entry["growth"], rel=1e-6)


def test_other_optimizers_have_no_effective_rate() -> None:
    for optimizer_of in (torch.optim.AdamW, torch.optim.LBFGS):
        records = records_of_steps(optimizer_of)
        assert records[-1]["weights"]["0.weight"]["effective_rate"] is None
