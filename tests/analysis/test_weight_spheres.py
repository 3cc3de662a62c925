"""T10 on real layers: the spheres that normalizations of weights put them on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import geonorm

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
