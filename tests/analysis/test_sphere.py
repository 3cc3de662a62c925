"""The spheres of real layers (T1–T3, T8, T9, T11, T20), the printed claims that are false, collapsed channels."""

from __future__ import annotations

import math

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


def test_T1_T3_batch_norm_rows_lie_on_the_sphere_about_beta_e() -> None:
    """‖BN − βe‖ = |γ|√B, ⟨BN − βe, e⟩ = 0, ‖BN‖² = B(γ² + β²): by hand, and as the diagnostic says."""
    model = dense(exact(nn.BatchNorm1d(M)))
    x = randn(B, N)
    (layer,) = sphere(model, x).layers
    rows, gamma, beta = model(x).detach().T, model[1].weight.detach(), model[1].bias.detach()
    torch.testing.assert_close((rows - beta[:, None]).norm(dim=1), gamma * math.sqrt(B))
    torch.testing.assert_close(rows.square().sum(1), B * (gamma**2 + beta**2))
    assert float((rows - beta[:, None]).sum(1).abs().max()) < 1e-12
    assert layer.radius == pytest.approx(1, abs=1e-12)
    assert layer.off < 1e-12
    share = rows.mean(1).square() / rows.square().mean(1)
    assert layer.energy == pytest.approx(float(share.mean()), rel=1e-12)
    torch.testing.assert_close(layer.gamma, gamma)
    torch.testing.assert_close(layer.beta, beta)


def test_T2_a_negative_factor_turns_the_sphere_point_around() -> None:
    """N(αv + t) = sign(α)·N(v). Printed for every real α: false for α < 0; α = 0 gives a constant."""
    norm, v = exact(nn.BatchNorm1d(M)), randn(B, M)
    torch.testing.assert_close(norm(2 * v + 3), norm(v))
    torch.testing.assert_close(norm(-2 * v + 3), -norm(v))
    assert float((norm(-2 * v + 3) - norm(v)).detach().abs().max()) > 1
    assert float(norm(0 * v).detach().abs().max()) == 0


def test_T3_eps_makes_the_sphere_smaller() -> None:
    """Radius √n·σ/√(σ² + eps)."""
    model = nn.Sequential(nn.BatchNorm1d(1, eps=0.5)).double()
    x = randn(B, 1)
    var = float(x.var(correction=0))
    (layer,) = sphere(model, x).layers
    assert layer.radius == pytest.approx(math.sqrt(var / (var + 0.5)), rel=1e-12)
    assert layer.eps == pytest.approx(0.5 / (var + 0.5), rel=1e-12)


def test_T8_permuting_the_batch_permutes_the_output() -> None:
    """Equivariance, not the same output."""
    norm, y, order = exact(nn.BatchNorm1d(M)), randn(B, M), torch.randperm(B)
    torch.testing.assert_close(norm(y[order]), norm(y)[order])
    assert float((norm(y[order]) - norm(y)).detach().abs().max()) > 0.5


def test_T9_layer_norm_centres_the_columns_of_the_weights() -> None:
    """LN(WX) does not see W + 1cᵗ; each sample lies on its own sphere."""
    model = nn.Sequential(nn.Linear(N, M, bias=False), exact(nn.LayerNorm(M))).double()
    x = randn(B, N)
    y = model(x)
    (layer,) = sphere(model, x).layers
    assert (layer.unit, layer.dimension) == ("sample", M)
    assert layer.radius == pytest.approx(1, abs=1e-12)
    with torch.no_grad():
        model[0].weight += randn(1, N, seed=2)
        torch.testing.assert_close(model(x), y)
        model[0].weight += randn(M, 1, seed=2)  # centring rows is something else
    assert float((model(x) - y).detach().abs().max()) > 0.5


def test_T11_on_white_data_batch_norm_is_weight_norm() -> None:
    """Σ = I gives W′ = γW/‖W‖; unit covariance is needed, independence is not enough."""
    model = dense(exact(nn.BatchNorm1d(M)))
    white = torch.linalg.qr(randn(200, N) - randn(200, N).mean(0)).Q * math.sqrt(200)
    (layer,) = sphere(model, white).layers
    gamma = model[1].weight.detach()
    torch.testing.assert_close(layer.effective, gamma)
    torch.testing.assert_close(layer.kernel, torch.ones(M, dtype=torch.float64))
    (other,) = sphere(model, white * torch.linspace(0.2, 3, N, dtype=torch.float64)).layers
    assert float((other.effective - gamma).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("norm", "shape", "dims"),
    [
        (nn.BatchNorm1d(5), (B, 5), (0,)),
        (nn.BatchNorm2d(5), (4, 5, 3, 3), (0, 2, 3)),
        (nn.LayerNorm(5, elementwise_affine=False), (B, 5), (1,)),
        (nn.GroupNorm(1, 5, affine=False), (4, 5, 3, 3), (1, 2, 3)),
        (geonorm.AugBatchNorm1d(5, phi=2), (B, 5), (0,)),
    ],
    ids=["BN", "BN conv", "LN", "GN", "aug φ=2"],
)
def test_T20_gradients_are_tangent_to_the_sphere(
    norm: nn.Module, shape: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    """∇_y L ⊥ ŷ and ⊥ e: per channel over N·H·W for batch norms, per sample for layer norms."""
    y = randn(*shape).requires_grad_()
    normalized = exact(norm)(y)
    (g,) = torch.autograd.grad(normalized, y, randn(*shape, seed=1))
    assert float((g * normalized.detach()).sum(dims).abs().max()) < 1e-10
    assert float(g.sum(dims).abs().max()) < 1e-10
    assert float(g.abs().max()) > 0.01


def test_layers_of_all_kinds_are_read() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.LayerNorm((4, 6, 6)), nn.RMSNorm((4, 6, 6)),
        geonorm.PopNorm2d(4), nn.LocalResponseNorm(2), nn.BatchNorm2d(4, affine=False),
    )  # fmt: skip
    found = sphere(model, torch.randn(5, 3, 8, 8))
    read = {layer.kind: (layer.unit, layer.dimension) for layer in found.layers}
    assert read == {
        "GroupNorm": ("group of a sample", 72),
        "InstanceNorm2d": ("channel of a sample", 36),
        "LayerNorm": ("sample", 144),
        "RMSNorm": ("sample", 144),
        "PopNorm2d": ("channel", 180),
        "BatchNorm2d": ("channel", 180),
    }
    assert next(layer for layer in found.layers if layer.kind == "PopNorm2d").radius == pytest.approx(1 / 4, rel=1e-3)
    assert found.skipped == {"6": "its axes are unknown"}


def test_a_sample_without_a_batch_and_a_norm_that_is_the_model() -> None:
    (layer,) = sphere(nn.InstanceNorm2d(5), torch.randn(5, 5, 7)).layers
    assert (layer.name, layer.dimension) == ("(model)", 35)
    assert layer.off < 1e-9


def planted(fault: str) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(N, M), nn.BatchNorm1d(M), nn.ReLU(), nn.Linear(M, 2))
    with torch.no_grad():
        w = model[0].weight
        if fault == "gamma":
            model[1].weight[2] = 1e-6
        elif fault == "tiny":
            w[2] *= 1e-5
        elif fault == "zero":
            w[2] = 0
        elif fault == "kernel":
            w[2] = 0
            w[2, 0] = 1
    return model


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("gamma", "γ is almost 0"), ("tiny", "tiny"), ("zero", "weights are 0"), ("kernel", "kernel of Σ"), ("", None)],
)
def test_collapsed_channels_are_found_with_their_cause(fault: str, cause: str | None) -> None:
    x = torch.randn(64, N, generator=torch.Generator().manual_seed(3))
    x[:, 0] = 1.0  # input 0 is constant: a row that sees nothing else is in the kernel of Σ
    (layer,) = sphere(planted(fault), x).layers
    assert list(layer.collapsed) == ([] if cause is None else [2])
    assert cause is None or cause in layer.collapsed[2]


def test_gammas_that_all_start_at_zero_have_not_collapsed() -> None:
    model = nn.Sequential(nn.Linear(N, M), nn.BatchNorm1d(M))
    nn.init.zeros_(model[1].weight)
    (layer,) = sphere(model, torch.randn(B, N)).layers
    assert layer.collapsed == {}


def test_results_and_pictures() -> None:
    found = sphere(planted(""), [torch.randn(8, N), (torch.randn(5, N), torch.zeros(5))])
    assert found.layers[0].dimension == 8
    assert found.table().startswith("norm")
    assert len(found.to_dict()["layers"][0]["gamma"]) == M
    assert len(found.plot().axes) == 1


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 6, 3, groups=2, stride=2),
        nn.Conv2d(4, 6, (3, 2), padding=(1, 0), dilation=2, groups=2),
    ],
    ids=["padded", "groups", "all"],
)
def test_kernel_is_the_ratio_over_the_patches_that_a_row_sees(conv: nn.Conv2d) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4, 7, 7).double() + 1
    x[:, 2:] *= 100
    conv = conv.double()
    (layer,) = sphere(nn.Sequential(conv, nn.BatchNorm2d(6).double()), x).layers
    patches = nn.functional.unfold(x, conv.kernel_size, conv.dilation, conv.padding, conv.stride)
    for group, rows in enumerate(conv.weight.detach().flatten(1).chunk(conv.groups)):
        seen = patches.unflatten(1, (conv.groups, -1))[:, group].transpose(0, 1).flatten(1)
        covariance = torch.cov(seen, correction=0)
        ratio = (rows @ covariance * rows).sum(1) / (rows.square().sum(1) * covariance.trace() / len(covariance))
        torch.testing.assert_close(layer.kernel.chunk(conv.groups)[group], ratio)


def test_a_constant_input_is_not_called_a_kernel() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    (layer,) = sphere(model, torch.ones(8, 3, 5, 5)).layers
    assert set(layer.collapsed.values()) == {"the input of the operation before it hardly varies"}


def test_energy_along_e_counts_the_radius_that_eps_leaves() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(3, eps=1.0)
    nn.init.constant_(norm.bias, 2.0)
    nn.init.constant_(norm.weight, 3.0)
    x = torch.randn(64, 3) * 0.5
    (layer,) = sphere(nn.Sequential(norm), x).layers
    y = norm(x).detach().double()
    share = y.mean(0).square() / y.square().mean(0)
    assert layer.energy == pytest.approx(float(share.mean()), rel=1e-5)


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
