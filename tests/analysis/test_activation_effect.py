"""What activations leave of a normalization: known answers for symmetric inputs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import activation_effect


def symmetric(number: int = 512, channels: int = 6) -> Tensor:
    """Values with their mirror images: all odd moments are exactly 0."""
    x = torch.randn(number, channels, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.cat([x, -x])


def behind(activation: nn.Module):
    model = nn.Sequential(nn.BatchNorm1d(6, eps=1e-30), activation, nn.Linear(6, 3)).double()
    (arriving,) = activation_effect(model, symmetric()).operations
    return arriving


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU(inplace=True)], ids=["relu", "in place"])
def test_relu_after_batch_norm_is_division_by_the_rms_of_relu_up_to_root_two(activation: nn.Module) -> None:
    x = symmetric()
    arriving = behind(activation)
    assert arriving.rms == pytest.approx(1 / math.sqrt(2), rel=1e-12)
    assert arriving.division == pytest.approx(1, rel=1e-12)
    assert arriving.mean_share == pytest.approx(1 / math.pi, rel=0.1)
    relu = x.relu()
    divided = relu / relu.square().mean(0).sqrt()
    norm = nn.BatchNorm1d(6, eps=1e-30).double()
    torch.testing.assert_close(norm(x).relu() * math.sqrt(2), divided)


def test_tanh_keeps_the_mean_removal_and_sigmoid_neither() -> None:
    tanh, sigmoid = behind(nn.Tanh()), behind(nn.Sigmoid())
    assert tanh.mean_share < 1e-25
    assert 0.3 < tanh.division < 0.6
    assert sigmoid.mean_share > 0.8
    assert sigmoid.division < 0.15


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Sigmoid(), nn.GELU()], ids=["tanh", "sigmoid", "gelu"])
def test_division_passed_on_is_the_slope_of_log_rms(activation: nn.Module) -> None:
    """Against finite differences in the scale of the norm's output."""

    def log_rms(scale: float) -> float:
        norm = nn.BatchNorm1d(6, eps=1e-30).double()
        return 0.5 * math.log(float(activation(scale * norm(symmetric())).detach().square().mean()))

    slope = (log_rms(1 + 1e-4) - log_rms(1 - 1e-4)) / (math.log1p(1e-4) - math.log1p(-1e-4))
    assert behind(activation).division == pytest.approx(slope, rel=1e-5)


def test_without_a_norm_there_is_nothing_to_survive() -> None:
    found = activation_effect(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)).double(), symmetric())
    assert [arriving.division for arriving in found.operations] == [None, None]
    assert found.operations[0].mean_share < 1e-25


def test_batches_count_by_their_values() -> None:
    """The pooled mean and rms of unequal batches, against all values at once."""
    x = torch.randn(30, 4, dtype=torch.float64) + 1
    (arriving,) = activation_effect(nn.Linear(4, 2).double(), [x[:7], x[7:]]).operations
    rms = x.square().mean(0).sqrt()
    share = x.mean(0).square() / rms.square()
    assert arriving.rms == pytest.approx(float(rms.mean()))
    assert (arriving.rms_low, arriving.rms_high) == pytest.approx((float(rms.min()), float(rms.max())))
    assert arriving.mean_share == pytest.approx(float(share.mean()))


def test_residual_networks_and_results() -> None:
    from geonorm.lab.models import CifarResNet

    found = activation_effect(CifarResNet(1, "bn", width=4), torch.randn(8, 3, 16, 16))
    divisions = [arriving.division for arriving in found.operations]
    assert divisions[0] is None
    assert all(division == pytest.approx(1, abs=1e-5) for division in divisions[1:])  # ReLU and sums: homogeneous
    assert found.skipped == {}
    assert len(found.plot().axes) == 1
    assert found.to_dict()["operations"][0]["name"] == "conv"


def test_several_batches_count_as_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(32, 4)
    (once,), (twice,) = (activation_effect(model, batches).operations for batches in (x, [x, x, x]))
    assert twice.division == pytest.approx(once.division)
    assert (twice.rms, twice.mean_share) == pytest.approx((once.rms, once.mean_share))
