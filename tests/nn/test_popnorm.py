"""POP-Norm's own parameters."""

import torch

import geonorm
from geonorm.functional import pop_norm, spread

X = torch.randn(64, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 1
BETA = torch.tensor([[0.5, -1.0, 0.0, 2.0, 0.1]], dtype=torch.float64)
GAMMA = torch.tensor([[1.0, -0.5, 2.0, 1.5, 0.3]], dtype=torch.float64)


def test_is_a_batchnorm_with_other_parameters() -> None:
    """γ_bn = (γ/κ)√(v/(v+β²)), β_bn = (γ/κ)β/√(v+β²)."""
    y, _ = pop_norm(X, 0, weight=GAMMA, bias=BETA, kappa=4.0, eps=0.0)
    v = X.var(0, correction=0)
    length = (v + BETA.square()).sqrt()
    expected = GAMMA / 4 * ((v.sqrt() / length) * (X - X.mean(0)) / v.sqrt() + BETA / length)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(spread(y, "rms", 0), (GAMMA / 4).abs()[0])


def test_no_parameters_that_do_nothing() -> None:
    assert geonorm.PopNorm2d(3, center=False).bias is None
    assert geonorm.PopNorm2d(3, scale=False).weight is None


def test_kappa_without_affine() -> None:
    y = geonorm.PopNorm1d(5, affine=False, kappa=2.0, eps=0.0, dtype=torch.float64)(X)
    torch.testing.assert_close(spread(y, "rms", 0), torch.full((5,), 0.5, dtype=torch.float64))


def test_kappa_alone_is_exact_and_on_the_device_of_the_layer() -> None:
    layer = geonorm.PopNorm1d(5, affine=False, kappa=3.0, eps=0.0, dtype=torch.float64)
    third = torch.full((5,), 1 / 3, dtype=torch.float64)
    for output in (layer(X), pop_norm(X, 0, kappa=3.0, eps=0.0).output):
        torch.testing.assert_close(spread(output, "rms", 0), third, rtol=1e-14, atol=0)
    assert layer.to("meta").eval()(X.to("meta")).is_meta
