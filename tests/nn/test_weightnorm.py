"""Weight-side normalizations."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import geonorm

MODULES = [lambda: nn.Linear(12, 5), lambda: nn.Conv2d(3, 5, 3), lambda: nn.Conv1d(4, 6, 3, groups=2)]


@pytest.mark.parametrize("make", MODULES)
def test_rows_lie_on_their_sphere(make) -> None:
    ws = geonorm.weight_standardization(make().double(), eps=0.0)
    rows = ws.weight.flatten(1)
    torch.testing.assert_close(rows.mean(1), torch.zeros(len(rows), dtype=torch.float64))
    torch.testing.assert_close(rows.square().mean(1), torch.ones(len(rows), dtype=torch.float64))
    cwn = geonorm.centered_weight_norm(make().double(), eps=0.0)
    rows = cwn.weight.flatten(1)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows), dtype=torch.float64))
    torch.testing.assert_close(rows.mean(1), torch.zeros(len(rows), dtype=torch.float64))


def test_standardized_is_centered_times_root_n() -> None:
    layer = nn.Linear(16, 4).double()
    ws, cwn = geonorm.WeightStandardization(0.0)(layer.weight), geonorm.CenteredWeightNorm(0.0)(layer.weight)
    torch.testing.assert_close(ws, 4 * cwn)


@pytest.mark.parametrize("apply", [geonorm.weight_standardization, geonorm.centered_weight_norm])
@pytest.mark.parametrize("make", MODULES)
def test_life(apply, make) -> None:
    """state_dict round trip, deepcopy, gradcheck, scale invariance, assignment, removal."""
    layer = apply(make().double(), eps=1e-12)
    other = apply(make().double(), eps=1e-12)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    original = layer.parametrizations.weight.original
    assert torch.autograd.gradcheck(layer.parametrizations.weight[0], original.detach().clone().requires_grad_())
    before = layer.weight.detach().clone()
    with torch.no_grad():
        original.mul_(3)
    torch.testing.assert_close(layer.weight, before)
    layer.weight = torch.randn_like(before)
    layer.weight.square().sum().backward()
    assert bool(original.grad.isfinite().all())
    parametrize.remove_parametrizations(layer, "weight")
    assert "weight" in dict(layer.named_parameters())


def test_constant_rows_stay_finite() -> None:
    for cls in (geonorm.WeightStandardization, geonorm.CenteredWeightNorm):
        w = torch.full((2, 5), 3.0, requires_grad=True)
        out = cls()(w)
        out.sum().backward()
        assert bool(out.isfinite().all())
        assert bool(w.grad.isfinite().all())


def test_refuses_what_has_no_rows() -> None:
    with pytest.raises(ValueError, match="at least two dimensions"):
        geonorm.weight_standardization(nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="at least two dimensions"):
        geonorm.centered_weight_norm(nn.ReLU())
    assert "eps=1e-05" in repr(geonorm.weight_standardization(nn.Linear(2, 2)))


def test_torch_own_norms_are_at_hand() -> None:
    assert geonorm.nn.weight_norm is nn.utils.parametrizations.weight_norm
    assert geonorm.nn.spectral_norm is nn.utils.parametrizations.spectral_norm


ROWS, SIZE = 5, 12


def conv() -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(3, ROWS, 2, bias=False).double()


def rows(layer: nn.Module) -> Tensor:
    return layer.weight.detach().flatten(1)


def test_T10_weight_norm_has_rows_of_length_g() -> None:
    layer = parametrizations.weight_norm(conv())
    g = torch.linspace(0.5, 3, ROWS).double().view(-1, 1, 1, 1)
    layer.parametrizations.weight.original0.data.copy_(g)
    torch.testing.assert_close(rows(layer).norm(dim=1), g.flatten())
    assert float(rows(layer).mean(1).abs().max()) > 1e-2  # not centred


@pytest.mark.parametrize(
    ("put", "radius"),
    [(geonorm.centered_weight_norm, 1.0), (geonorm.weight_standardization, SIZE**0.5)],
)
def test_T10_centred_rows_lie_on_the_equator(put, radius: float) -> None:
    """Radius 1 or √n, and orthogonal to e: a sphere of dimension n − 2."""
    layer = put(conv(), eps=0.0)
    torch.testing.assert_close(rows(layer).norm(dim=1), torch.full((ROWS,), radius, dtype=torch.float64))
    assert float(rows(layer).mean(1).abs().max()) < 1e-15


def test_T10_standardization_is_the_centred_norm_times_root_n_and_differs_without_a_gain() -> None:
    standard, centred = geonorm.weight_standardization(conv(), eps=0.0), geonorm.centered_weight_norm(conv(), eps=0.0)
    torch.testing.assert_close(rows(standard), SIZE**0.5 * rows(centred))
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    assert float((standard(x) - centred(x)).detach().abs().max()) > 1
    norm = nn.BatchNorm2d(ROWS, eps=1e-14).double()
    torch.testing.assert_close(norm(standard(x)), norm(centred(x)))


def test_T10_spectral_norm_has_largest_singular_value_one() -> None:
    layer = parametrizations.spectral_norm(conv(), n_power_iterations=500)
    assert float(torch.linalg.matrix_norm(rows(layer), 2)) == pytest.approx(1, rel=1e-9)
    assert float(rows(layer).norm(dim=1).max()) < 1  # rows are on no sphere of their own
