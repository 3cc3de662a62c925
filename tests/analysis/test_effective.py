"""T4: an operation and the batch norm after it as one operation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import sphere

B, N, M = 16, 8, 6  # batch, inputs, outputs


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(norm: nn.Module) -> nn.Module:
    """In float64, without eps."""
    norm.eps = 1e-30
    return norm.double()


def dense(norm: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(N, M), norm).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.linspace(0.5, 2, M))
        model[1].bias.copy_(torch.linspace(-1, 1, M))
    return model


@pytest.mark.parametrize("kind", ["linear", "conv", "aug"])
def test_T4_effective_weights(kind: str) -> None:
    """BN(WX) = W′X + b′ with W′ΣW′ᵗ = γ²: residuals of rounding only, and W′ against Σ by hand."""
    if kind == "conv":
        model = nn.Sequential(nn.Conv2d(3, M, 3, padding=1), exact(nn.BatchNorm2d(M))).double()
        x = randn(4, 3, 6, 6)
    else:
        model = dense(exact(nn.BatchNorm1d(M) if kind == "linear" else geonorm.AugBatchNorm1d(M)))
        x = randn(B, N)
    (layer,) = sphere(model, x).layers
    assert layer.ellipsoid < 1e-10
    assert layer.equality < 1e-10
    if kind == "linear":
        w, gamma = model[0].weight.detach(), model[1].weight.detach()
        covariance = torch.cov(x.T, correction=0)
        sigma = (w @ covariance @ w.T).diagonal().sqrt()
        torch.testing.assert_close(layer.effective, gamma * w.norm(dim=1) / sigma)
        kernel = sigma.square() / (w.square().sum(1) * covariance.trace() / N)
        torch.testing.assert_close(layer.kernel, kernel)


def test_T4_effective_weights_are_unbounded_along_the_kernel() -> None:
    """With B ≤ n the set W′ΣW′ᵗ = γ² is a cylinder: the same outputs with effective weights as large as one likes."""
    model = dense(exact(nn.BatchNorm1d(M)))
    x = randn(4, N)
    kernel = torch.linalg.svd(x - x.mean(0)).Vh[-1]
    (before,) = sphere(model, x).layers
    y = model(x)
    with torch.no_grad():
        model[0].weight += 1e4 * kernel
    (after,) = sphere(model, x).layers
    torch.testing.assert_close(model(x), y, atol=1e-6, rtol=0)
    assert float(after.effective.min()) > 1e3 * float(before.effective.max())
