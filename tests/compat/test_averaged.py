"""Averaged weights by torch.optim.swa_utils: EMA and SWA of models with our layers, and their statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import geonorm

NORMS = ["bn", "augbn(phi=2)", "augbn(phi=1.5)", "diffphi", "robustbn", "guardbn", "pop(kappa=4)"]
DECAY = 0.75


def model(norm: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), geonorm.create_norm(norm, 8, dim=1), nn.ReLU(), nn.Linear(8, 3)).double()


def batches(number: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [2 + 3 * torch.randn(32, 6, generator=generator, dtype=torch.float64) for _ in range(number)]


def train(net: nn.Module, average: AveragedModel) -> list[dict[str, Tensor]]:
    """A few steps; the states after each."""
    optimizer, states = torch.optim.SGD(net.parameters(), lr=0.05), []
    for x in batches():
        optimizer.zero_grad()
        net.train()(x).square().mean().backward()
        optimizer.step()
        average.update_parameters(net)
        states.append(copy.deepcopy(net.state_dict()))
    return states


@pytest.mark.parametrize("norm", NORMS)
def test_an_exponential_average_with_buffers(norm: str) -> None:
    """Of parameters and running statistics alike: the recursion by hand, from the first state on."""
    net = model(norm)
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True)
    first, *rest = train(net, average)
    expected = {key: value.clone() for key, value in first.items()}
    for state in rest:
        for key, value in state.items():
            if value.is_floating_point():
                expected[key].lerp_(value, 1 - DECAY)
    found = average.module.state_dict()
    assert found.keys() == expected.keys()
    for key, value in found.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, expected[key])
    by_hand = model(norm)
    by_hand.load_state_dict(found)
    x = batches(1)[0]
    assert torch.equal(average.eval()(x), by_hand.eval()(x))


@pytest.mark.parametrize("norm", NORMS)
def test_the_statistics_of_averaged_weights_are_recomputed(norm: str) -> None:
    """As those of a new model with these weights that was only ever recalibrated."""
    net = model(norm)
    average = AveragedModel(net)
    train(net, average)
    report = geonorm.recalibrate(average, batches())
    assert [change.name for change in report.changed] == ["module.1"]
    fresh = model(norm)
    fresh.load_state_dict({**fresh.state_dict(), **dict(average.module.named_parameters())}, strict=True)
    geonorm.recalibrate(fresh, batches())
    for key, value in fresh.state_dict().items():
        # To rounding: the search of a center begins at the statistics that there were.
        torch.testing.assert_close(average.module.state_dict()[key], value, rtol=1e-14, atol=1e-14)
    inputs = average.module[0](torch.cat(batches()))
    if norm in ("bn", "augbn(phi=2)"):
        torch.testing.assert_close(average.module[1].running_mean, inputs.mean(0))
        torch.testing.assert_close(average.module[1].running_var, inputs.var(0))


def test_the_trap_of_update_bn() -> None:
    """It looks for subclasses of torch's ``_BatchNorm``, which our layers are not, and says nothing."""
    net = model("augbn(phi=2)")
    average = AveragedModel(net)
    train(net, average)
    before = copy.deepcopy(average.state_dict())
    update_bn(batches(), average)
    assert all(torch.equal(average.state_dict()[key], value) for key, value in before.items())
    geonorm.recalibrate(average, batches())
    assert not torch.equal(average.state_dict()["module.1.running_mean"], before["module.1.running_mean"])


def test_a_whole_stochastic_weight_average() -> None:
    """With its schedule, converted norms and broken samples, as the recipe of the docs has it."""
    net = model("bn")
    geonorm.convert(net, "guardbn")
    average, optimizer = AveragedModel(net), torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = SWALR(optimizer, swa_lr=0.05)
    data = batches()
    data[0][:2] *= 1000
    for _ in range(2):
        for x in data:
            optimizer.zero_grad()
            net.train()(x).square().mean().backward()
            optimizer.step()
        average.update_parameters(net)
        schedule.step()
    geonorm.recalibrate(average, data, guard=3.0)
    clean = copy.deepcopy(average)
    geonorm.recalibrate(clean, batches())
    ratio = average.module[1].running_var / clean.module[1].running_var
    assert (ratio.log().abs() < 0.5).all(), "two broken samples of 192 hardly count; they are 1000 times too large"
