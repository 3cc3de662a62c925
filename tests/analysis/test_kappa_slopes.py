"""The slopes of curvature against κ of POP-Norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import curvature, kappa_slopes
from helpers.assert_model_unchanged import assert_model_unchanged
from helpers.float64_classifier import classifier, labelled_batch, seeded_randn64


def squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum(1)


def test_kappa_slope_of_the_last_layer_is_exactly_minus_two() -> None:
    """POP → linear → MSE: the Hessian is that of F(w/κ), 16 times smaller for each factor 4."""
    model = nn.Sequential(geonorm.PopNorm1d(4), nn.Linear(4, 2)).double()
    nn.init.zeros_(model[1].weight)  # the variance follows F(w/κ) too, seen from the same point w = 0
    with assert_model_unchanged(model):
        found = kappa_slopes(model, (seeded_randn64(32, 4), seeded_randn64(32, 2, seed=1)), squares, tolerance=1e-10)
    (slope,) = found.slopes
    assert (slope.norm, slope.layer) == ("0", "1")
    assert slope.largest == pytest.approx(-2, abs=1e-9)
    assert slope.variance == pytest.approx(-2, abs=1e-9)
    assert slope.eigenvalues[0] / slope.eigenvalues[1] == pytest.approx(16, rel=1e-9)
    assert slope.eigenvalues[1] / slope.eigenvalues[2] == pytest.approx(16, rel=1e-9)
    assert model[0].kappa == 4.0  # put back


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh()])
def test_kappa_slope_of_interior_layers(activation: nn.Module) -> None:
    """ReLU and the next POP-Norm divide the scale away again: no dependence on κ. With tanh there is some."""
    torch.manual_seed(0)
    model = nn.Sequential(
        geonorm.PopNorm1d(4, eps=1e-30), nn.Linear(4, 6, bias=False), activation,
        geonorm.PopNorm1d(6, eps=1e-30), nn.Linear(6, 2, bias=False),
    ).double()  # fmt: skip
    model[1].weight.data.mul_(5)  # out of tanh's linear part
    found = kappa_slopes(model, (seeded_randn64(32, 4), seeded_randn64(32, 2, seed=1)), squares, tolerance=1e-8)
    interior, last = found.slopes
    assert (interior.layer, last.layer) == ("1", "4")
    assert last.largest == pytest.approx(-2, abs=1e-6)
    if isinstance(activation, nn.ReLU):
        assert interior.largest == pytest.approx(0, abs=1e-6)
        assert interior.variance == pytest.approx(0, abs=1e-6)
        assert interior.eigenvalues == pytest.approx([interior.eigenvalues[0]] * 3, rel=1e-7)
    else:
        assert abs(interior.eigenvalues[2] / interior.eigenvalues[0] - 1) > 0.1


def test_kappa_of_converted_models() -> None:
    """A converted network has its POP-Norms inside the layers; they are found, and are not part of the layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3), nn.BatchNorm1d(3)).double()
    geonorm.convert(model, "pop")
    assert [(slope.norm, slope.layer) for slope in kappa_slopes(model, labelled_batch(), kappas=(1, 4)).slopes] == [
        ("0.pre_norm", "0"),
        ("3.pre_norm", "3"),
    ]
    blocks = curvature(model, labelled_batch(), hessian=False).blocks
    weights = sum(p.numel() for name, p in model.named_parameters() if name in ("0.weight", "0.bias"))
    assert blocks[1].parameters == weights


def test_errors_of_kappa() -> None:
    with pytest.raises(ValueError, match=r"geonorm\.convert"):
        kappa_slopes(classifier(), labelled_batch())
    with pytest.raises(ValueError, match="two different"):
        kappa_slopes(classifier(geonorm.PopNorm1d(5)), labelled_batch(), kappas=(4,))
