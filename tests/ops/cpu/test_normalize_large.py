"""One channel with very many values, on the kernels."""

import pytest
import torch

import geonorm
from geonorm.ops import choose, problem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for"),
]
COUNT = 100_000_000


def test_a_hundred_million_values_in_one_channel() -> None:
    """The center is a root of Σ sgn(x − c)|x − c|^½ to its tolerance, and the gradients add up."""
    torch.manual_seed(0)
    x = torch.randn(COUNT, 1).add_(3.0).requires_grad_()
    layer = geonorm.AugBatchNorm1d(1, momentum=1.0)
    y = layer(x)
    rows = y.grad_fn.saved_tensors[-2]
    assert rows.shape == (1, len(problem.COLUMNS))
    assert float(rows[0, problem.BY]) == problem.BY_CPU
    center, force, slope = layer.running_center.double(), 0.0, 0.0
    for part in x.detach().split(10_000_000):
        r = part.double() - center
        force += float((r.sign() * r.abs().sqrt()).sum())
        slope += float(r.abs().clamp_min(1e-7).rsqrt().sum()) / 2
    assert abs(force / slope) <= 3e-6  # |c| eps, and eps of the spread
    assert abs(float(layer.running_mean) - float(x.detach().double().mean())) < 1e-6

    g = torch.rand(COUNT, 1)
    y.backward(g)
    assert float(layer.bias.grad) == pytest.approx(float(g.double().sum()), rel=1e-6)
    pairs = zip(g.split(10**7), y.detach().split(10**7), strict=True)
    products = sum(float((a.double() * b.double()).sum()) for a, b in pairs)
    assert float(layer.weight.grad) == pytest.approx(products, rel=1e-4, abs=COUNT * 1e-6)
    assert abs(float(x.grad.double().sum())) < COUNT * 1e-7  # a common shift changes nothing
