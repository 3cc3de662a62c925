"""The table of scale invariances (T12) on real layers, and that "every row, under all methods" is false."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import geonorm
from geonorm.analysis import Unit, invariance
from geonorm.nn import centered_weight_norm, weight_standardization

ROWS, COLUMNS = 6, 5


def net(operation: nn.Module, *norm: nn.Module) -> nn.Sequential:
    """An operation and its norm, then a head that sees the size of its input."""
    return nn.Sequential(operation, *norm, nn.Tanh(), nn.Linear(ROWS, 3))


def linear(bias: bool = True) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(COLUMNS, ROWS, bias=bias)


def batch(size: int = 16) -> Tensor:
    return torch.randn(size, COLUMNS, generator=torch.Generator().manual_seed(4))


def the_unit(model: nn.Module, x: Tensor) -> Unit:
    (unit,) = invariance(model, x).units
    return unit


# name: (model, kind, number of parts, whether the bias must be scaled along)
TABLE = {
    "BatchNorm": (lambda: net(linear(), nn.BatchNorm1d(ROWS)), "row", ROWS, False),
    "AugBatchNorm": (lambda: net(linear(), geonorm.AugBatchNorm1d(ROWS)), "row", ROWS, False),
    "robust": (lambda: net(linear(), geonorm.AugBatchNorm1d(ROWS, spread="robust")), "row", ROWS, False),
    "weight norm": (lambda: net(parametrizations.weight_norm(linear())), "row", ROWS, False),
    "weight standardization": (lambda: net(weight_standardization(linear())), "row", ROWS, False),
    "centered weight norm": (lambda: net(centered_weight_norm(linear())), "row", ROWS, False),
    "GroupNorm": (lambda: net(linear(False), nn.GroupNorm(2, ROWS)), "group", 2, False),
    "GroupNorm with a bias": (lambda: net(linear(), nn.GroupNorm(2, ROWS)), "group", 2, True),
    "GroupNorm, one group": (lambda: net(linear(False), nn.GroupNorm(1, ROWS)), "matrix", 1, False),
    "AugGroupNorm": (lambda: net(linear(False), geonorm.AugGroupNorm(2, ROWS)), "group", 2, False),
    "LayerNorm": (lambda: net(linear(False), nn.LayerNorm(ROWS)), "matrix", 1, False),
    "LayerNorm with a bias": (lambda: net(linear(), nn.LayerNorm(ROWS)), "matrix", 1, True),
    "AugLayerNorm": (lambda: net(linear(False), geonorm.AugLayerNorm(ROWS)), "matrix", 1, False),
    "RMSNorm": (lambda: net(linear(False), nn.RMSNorm(ROWS)), "matrix", 1, False),
    "spectral norm": (lambda: net(parametrizations.spectral_norm(linear())), "matrix", 1, False),
}


@pytest.mark.parametrize("name", TABLE)
def test_T12_the_table(name: str) -> None:
    """The unit is found, it is the known one, nothing changes, and weights are orthogonal to their gradients."""
    make, kind, groups, with_bias = TABLE[name]
    unit = the_unit(make(), batch())
    assert (unit.kind, unit.groups, unit.expected) == (kind, groups, kind)
    assert (unit.bias is not None) == with_bias
    assert unit.change < 1e-12
    assert unit.product < 1e-12
    assert unit.eps_change < 0.01


def test_T12_instance_norm_rows() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Tanh(), nn.Conv2d(4, 2, 3))
    unit = the_unit(model, torch.randn(2, 3, 8, 8))
    assert (unit.parameter, unit.kind, unit.groups, unit.expected) == ("0.weight", "row", 4, "row")


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(ROWS, eps=1e-14), nn.GroupNorm(2, ROWS, eps=1e-14), None], ids=["LN", "GN", "SN"]
)
def test_T12_the_printed_claim_is_false_for_rows(norm: nn.Module | None) -> None:
    """Lemma 3 says every row is invariant and orthogonal to its gradient under every method. By hand: it is not."""
    operation = linear(False)
    model = net(parametrizations.spectral_norm(operation).eval() if norm is None else operation, *[norm] * bool(norm))
    model.double()
    w = operation.parametrizations.weight.original if norm is None else operation.weight
    x = batch().double()
    y = model(x)
    y.backward(torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0)))
    products = (w.detach() * w.grad).sum(1)
    assert float(products.abs().max()) > 0.01
    assert abs(float(products.sum())) < 1e-9
    with torch.no_grad():
        w[0] *= 2
        assert float((model(x) - y).abs().max()) > 0.01


def test_no_norm_no_invariance() -> None:
    found = invariance(net(linear()), batch())
    assert (found.units, found.others, found.idle) == ([], ["0.weight", "2.weight"], [])


def test_frozen_norms_make_nothing_invariant() -> None:
    model = net(linear(), nn.BatchNorm1d(ROWS))
    geonorm.freeze(model)
    assert invariance(model, batch()).units == []


def test_evaluation_mode_is_read_with_training_statistics() -> None:
    model = net(linear(), nn.BatchNorm1d(ROWS)).eval()
    assert the_unit(model, batch()).kind == "row"
    assert not model.training


def test_invariance_reaches_back_through_positively_homogeneous_functions() -> None:
    """Linear → ReLU → Linear → BatchNorm: the first weight is invariant as a whole, with its bias."""
    model = nn.Sequential(
        nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, ROWS), nn.BatchNorm1d(ROWS), nn.Tanh(), nn.Linear(ROWS, 2)
    )
    torch.manual_seed(1)
    units = {unit.parameter: unit for unit in invariance(model, batch()).units}
    assert (units["0.weight"].kind, units["0.weight"].bias, units["0.weight"].expected) == ("matrix", "0.bias", None)
    assert (units["2.weight"].kind, units["2.weight"].bias) == ("row", None)


def test_transposed_convolutions_have_their_rows_in_dimension_1() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 2, 3))
    unit = the_unit(model, torch.randn(4, 3, 5, 5))
    assert (unit.kind, unit.groups, unit.dim) == ("row", 4, 1)


def test_weights_without_effect_are_called_idle() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(5, 2), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    found = invariance(Spare(), batch())
    assert (found.idle, found.others) == (["spare.weight"], ["used.weight"])


def test_eps_is_told_apart_from_the_weights() -> None:
    """Weights as small as √eps: by eps their size does matter, and both figures say so."""
    model = net(linear(), nn.BatchNorm1d(ROWS))
    with torch.no_grad():
        model[0].weight *= 1e-3
    unit = the_unit(model, batch())
    assert unit.kind == "row"
    assert unit.change < 1e-9
    assert unit.eps_change > 0.01


def test_the_change_is_what_the_outputs_do() -> None:
    """Oracle: the share of eps for one linear BatchNorm row, y(λσ)/y(σ) with σ_eff = λσ/√(λ²σ² + eps)."""
    torch.manual_seed(0)
    eps, x = 0.5, torch.randn(8, 4)
    model = nn.Sequential(nn.Linear(4, 1, bias=False), nn.BatchNorm1d(1, eps=eps))
    y = x.double() @ model[0].weight.detach().double().T
    sigma = float(y.std(correction=0))

    def size(scale: float) -> float:
        return scale * sigma / math.sqrt((scale * sigma) ** 2 + eps)

    unit = the_unit(model, x)
    # The factor of the only part is 2; both changes are divided by the same effect of noise.
    twin = copy.deepcopy(model).double()
    noise = torch.randn(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    w = twin[0].weight
    twin[1].eps = eps * 1e-12
    with torch.no_grad():
        plain = twin(x.double())
        w += noise * 0.5 * w.square().mean().sqrt()
        effect = float((twin(x.double()) - plain).norm())
    expected = abs(size(2) - size(1)) * math.sqrt(8) / effect
    assert unit.eps_change == pytest.approx(expected, rel=1e-6)
