"""pop_norm is its formula."""

import pytest
import torch

from geonorm.functional import pop_norm, spread

X = torch.randn(64, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 1
BETA = torch.tensor([[0.5, -1.0, 0.0, 2.0, 0.1]], dtype=torch.float64)
GAMMA = torch.tensor([[1.0, -0.5, 2.0, 1.5, 0.3]], dtype=torch.float64)


@pytest.mark.parametrize("kind", ["rms", "mean_abs", "max_abs"])
def test_definition(kind: str) -> None:
    z = X - X.mean(0) + BETA
    y, _ = pop_norm(X, 0, weight=GAMMA, bias=BETA, kappa=4.0, eps=1e-3, spread=kind)
    torch.testing.assert_close(y, GAMMA / 4 * z / (spread(z, kind, 0).square() + 1e-3).sqrt())
    z = X - (1 + BETA) * X.mean(0)
    y, _ = pop_norm(X, 0, weight=GAMMA, bias=BETA, kappa=4.0, eps=1e-3, spread=kind, shift="mul")
    torch.testing.assert_close(y, GAMMA / 4 * z / (spread(z, kind, 0).square() + 1e-3).sqrt())
    u = X / (spread(X, kind, 0).square() + 1e-3).sqrt()
    y, _ = pop_norm(X, 0, weight=GAMMA, bias=BETA, kappa=4.0, eps=1e-3, spread=kind, order="scale_first")
    torch.testing.assert_close(y, GAMMA / 4 * (u - u.mean(0) + BETA))


def test_parts_alone() -> None:
    y, _ = pop_norm(X, 0, weight=GAMMA, bias=BETA, scale=False)
    torch.testing.assert_close(y, X - X.mean(0) + BETA)
    y, _ = pop_norm(X, 0, weight=GAMMA, bias=BETA, center=False, eps=0.0)
    torch.testing.assert_close(y, GAMMA / 4 * X / X.square().mean(0).sqrt())
