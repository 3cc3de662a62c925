"""The errata of "New Interpretations of Normalization Methods in Deep Learning" (docs/errata.md), without ε.

Layouts as in the paper: inputs X are n×B, weights W m×n, pre-activations Y = WX m×B. BatchNorm works on the rows of Y,
LayerNorm on its columns. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

Method = Callable[[Tensor, Tensor], Tensor]

M, N, B = 6, 8, 16  # rows of W, inputs, batch


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def standardize(v: Tensor, dim: int | tuple[int, ...] = -1, eps: float = 0.0) -> Tensor:
    centred = v - v.mean(dim, keepdim=True)
    return centred / (centred.square().mean(dim, keepdim=True) + eps).sqrt()


def unit_rows(w: Tensor) -> Tensor:
    return w / w.norm(dim=1, keepdim=True)


def centred_unit_rows(w: Tensor) -> Tensor:
    """Centered weight normalization."""
    return unit_rows(w - w.mean(1, keepdim=True))


def covariance(x: Tensor) -> Tensor:
    return torch.cov(x, correction=0)


def whitened(n: int, batch: int) -> Tensor:
    """Centred n×batch data of covariance exactly I."""
    rows = standardize(randn(n, batch))
    return torch.linalg.qr(rows.T).Q.T * batch**0.5


def group_norm(y: Tensor, groups: int = 2) -> Tensor:
    return standardize(y.unflatten(0, (groups, -1)), dim=1).flatten(0, 1)


def instance_norm(w: Tensor, x: Tensor) -> Tensor:
    """The batch taken as samples of four positions each."""
    return standardize((w @ x).unflatten(1, (-1, 4))).flatten(1)


METHODS: dict[str, Method] = {
    "BN": lambda w, x: standardize(w @ x),
    "IN": instance_norm,
    "WN": lambda w, x: unit_rows(w) @ x,
    "CWN": lambda w, x: centred_unit_rows(w) @ x,
    "WS": lambda w, x: standardize(w) @ x,
    "GN": lambda w, x: group_norm(w @ x),
    "LN": lambda w, x: standardize(w @ x, dim=0),
    "SN": lambda w, x: w / torch.linalg.matrix_norm(w, 2) @ x,
}


def loss(method: str, w: Tensor) -> Tensor:
    return (METHODS[method](w, randn(N, B, seed=1)) - randn(M, B, seed=2)).square().sum()


def gradient(method: str, w: Tensor) -> Tensor:
    w = w.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(method, w), w)
    return g


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def test_T1_standard_deviation_divides_by_the_root_of_n() -> None:
    """σ = ‖Pv‖/√n puts N(v) on the sphere of radius √n; the proof's 1/n gives radius n, its unsquared sum 0."""
    v = randn(9) + 3
    projected = v - v.mean()
    n = v.numel()
    assert float(v.std(correction=0)) == pytest.approx(float(projected.norm()) / n**0.5)
    assert float(standardize(v).norm()) == pytest.approx(n**0.5)
    assert float((projected / (projected.norm() / n)).norm()) == pytest.approx(n)
    assert abs(float(projected.mean())) < 1e-12 < 0.1 < float(v.var(correction=0))


def test_T2_standardization_keeps_the_sign_of_the_factor() -> None:
    """N(αv + t) = sign(α)·N(v): a negative factor mirrors, and 0 leaves nothing to divide by."""
    v = randn(9)
    torch.testing.assert_close(standardize(2 * v + 3), standardize(v))
    torch.testing.assert_close(standardize(-2 * v + 3), -standardize(v))
    assert distance(standardize(-2 * v + 3), standardize(v)) > 1
    assert standardize(0 * v).isnan().all()


def test_T3_batchnorm_divides_by_the_norm_of_the_row() -> None:
    """The row lies on the sphere about βe; an element over its own size, as (10) reads, is ±γ√B + β for all data."""
    y, gamma, beta = randn(B), 1.5, -0.7
    centred = y - y.mean()
    row = gamma * B**0.5 * centred / centred.norm() + beta
    torch.testing.assert_close(row, gamma * standardize(y) + beta)
    assert float(row.norm()) == pytest.approx((B * (gamma**2 + beta**2)) ** 0.5)
    printed = gamma * B**0.5 * centred / centred.abs() + beta
    torch.testing.assert_close((printed - beta).abs(), torch.full_like(y, gamma * B**0.5))
    assert distance(printed, row) > 3


def test_T4_effective_weights_lie_on_a_cylinder_when_the_batch_is_small() -> None:
    """Along the kernel of Σ the set wΣwᵗ = γ² is unbounded, so not compact; with Σ of full rank it is bounded."""
    gamma, w = 1.5, randn(1, N, seed=3)

    def effective_sizes(batch: int) -> tuple[list[float], float]:
        x = randn(N, batch)
        root = (x - x.mean(1, keepdim=True)) / batch**0.5  # Σ = root rootᵗ
        directions, singular, _ = torch.linalg.svd(root)
        sizes = []
        for t in (0.0, 1e3, 1e6):
            moved = w + t * directions[:, -1]  # the least eigenvector of Σ, in its kernel if there is one
            effective = gamma * moved / (moved @ root).norm()
            assert float((effective @ root).norm()) == pytest.approx(gamma)
            sizes.append(float(effective.norm()))
        return sizes, gamma / float(singular[-1])

    sizes, bound = effective_sizes(batch=64)
    assert max(sizes) <= bound * (1 + 1e-9)
    sizes, _ = effective_sizes(batch=4)
    assert sizes[2] > 500 * sizes[1] > 1e4 * sizes[0]


@pytest.mark.parametrize(("n", "batch"), [(6, 3), (6, 6), (6, 7), (6, 20), (20, 8)])
def test_T5_centring_costs_one_rank(n: int, batch: int) -> None:
    """rank Σ = min(n, B−1): the printed bound min(n, B) is not reached for B ≤ n."""
    rank = int(torch.linalg.matrix_rank(covariance(randn(n, batch)), hermitian=True))
    assert rank == min(n, batch - 1)
    assert (rank < min(n, batch)) == (batch <= n)


def test_T6_random_weights_are_never_in_the_kernel_and_nearness_does_not_matter() -> None:
    """A share r/n of the energy is outside the kernel; BatchNorm sees only that part, and its size only through ε."""
    n, batch, rows = 64, 4, 2000
    x, w = randn(n, batch), randn(rows, n, seed=1)
    basis = torch.linalg.qr(x - x.mean(1, keepdim=True)).Q[:, : batch - 1]  # range of Σ
    inside = w @ basis @ basis.T
    share = (inside.norm(dim=1) / w.norm(dim=1)).square()
    assert float(share.mean()) == pytest.approx((batch - 1) / n, rel=0.1)
    assert float(share.min()) > 1e-5

    kernel = w - inside
    torch.testing.assert_close(standardize((inside + 1000 * kernel) @ x), standardize(inside @ x), atol=1e-6, rtol=0)
    near = inside + 1e4 * kernel
    assert float((standardize(near @ x).norm(dim=1) - batch**0.5).abs().max()) < 1e-9  # no collapse to 0

    y = 1e-3 * (w[:1] @ x)
    sigma = y.std(correction=0)
    expected = batch**0.5 * sigma / (sigma**2 + 1e-5).sqrt()
    torch.testing.assert_close(standardize(y, eps=1e-5).norm(), expected)
    assert float(expected) < 0.95 * batch**0.5


def test_T7_batch_of_two_is_degenerate_for_dense_layers_only() -> None:
    """Two values per channel become ±1 and pass no gradient; a conv layer has B·H·W values and does neither."""
    dense = randn(2, 5).requires_grad_()
    out = standardize(dense, dim=0)
    torch.testing.assert_close(out.detach().abs(), torch.ones_like(out))
    (g,) = torch.autograd.grad((out * randn(2, 5, seed=1)).sum(), dense)
    assert float(g.abs().max()) < 1e-12

    conv = randn(2, 5, 3, 3).requires_grad_()
    out = standardize(conv, dim=(0, 2, 3))
    (g,) = torch.autograd.grad((out * randn(2, 5, 3, 3, seed=1)).sum(), conv)
    assert float((out.detach().abs() - 1).abs().mean()) > 0.3
    assert float(g.abs().max()) > 0.1


def test_T8_batch_order_is_carried_along_not_ignored() -> None:
    """A permuted batch gives the permuted output (equivariance), which is not the same output."""
    y, order = randn(M, B), torch.randperm(B, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(standardize(y[:, order]), standardize(y)[:, order])
    assert distance(standardize(y[:, order]), standardize(y)) > 1


def test_T9_layernorm_centres_the_columns_of_the_weights() -> None:
    """LN(WX) uses W minus its mean row, so each column of W is centred; centring each row is something else."""
    w, x = randn(M, N), randn(N, B, seed=1)
    truth = standardize(w @ x, dim=0)

    def from_weights(v: Tensor) -> Tensor:
        return M**0.5 * v @ x / (v @ x).norm(dim=0)

    torch.testing.assert_close(from_weights(w - w.mean(0)), truth)
    assert distance(from_weights(w - w.mean(1, keepdim=True)), truth) > 0.5
    torch.testing.assert_close(standardize((w + randn(1, N, seed=2)) @ x, dim=0), truth)
    assert distance(standardize((w + randn(M, 1, seed=2)) @ x, dim=0), truth) > 0.5


def test_T10_weight_standardization_is_centred_weight_normalization_times_root_n() -> None:
    """WS = √n·CWN: other outputs by √n, the same only if a normalization or a free gain follows."""
    w, x = randn(M, N), randn(N, B, seed=1)
    ws, cwn = standardize(w), centred_unit_rows(w)
    torch.testing.assert_close(ws, N**0.5 * cwn)
    torch.testing.assert_close(cwn.norm(dim=1), torch.ones(M, dtype=torch.float64))
    assert distance(ws @ x, cwn @ x) > 1
    torch.testing.assert_close(standardize(ws @ x), standardize(cwn @ x))


def test_T11_batchnorm_is_weight_normalization_on_white_centred_data() -> None:
    """It takes Σ = I, and a zero mean or a bias. Independent inputs of unequal variance are not enough."""
    w, white = randn(M, N, seed=3), whitened(N, 200)
    torch.testing.assert_close(standardize(w @ white), unit_rows(w) @ white)

    shifted = white + randn(N, 1, seed=1)
    bias = -unit_rows(w) @ shifted.mean(1, keepdim=True)
    torch.testing.assert_close(standardize(w @ shifted), unit_rows(w) @ shifted + bias)
    assert distance(standardize(w @ shifted), unit_rows(w) @ shifted) > 0.3

    independent = white * torch.linspace(0.2, 3, N, dtype=torch.float64)[:, None]
    off_diagonal = covariance(independent) - torch.diag(covariance(independent).diag())
    assert float(off_diagonal.abs().max()) < 1e-12
    assert distance(standardize(w @ independent), unit_rows(w) @ independent) > 0.3


ROW_SCALES = torch.tensor([[0.5], [3.0], [1.7], [0.8], [2.0], [0.3]], dtype=torch.float64)


@pytest.mark.parametrize("method", ["BN", "IN", "WN", "CWN", "WS"])
def test_T12_rows_are_invariant_and_orthogonal_for_these(method: str) -> None:
    """BN, IN, WN, CWN and WS: every row may be scaled by itself, and every row is orthogonal to its gradient."""
    w = randn(M, N)
    assert float(loss(method, ROW_SCALES * w)) == pytest.approx(float(loss(method, w)), rel=1e-12)
    assert float((w * gradient(method, w)).sum(1).abs().max()) < 1e-11


@pytest.mark.parametrize("method", ["LN", "GN", "SN"])
def test_T12_rows_are_not_invariant_for_layer_group_and_spectral_norm(method: str) -> None:
    """LN, GN and SN: only the whole matrix may be scaled and is orthogonal to its gradient; single rows are not."""
    w = randn(M, N)
    value = float(loss(method, w))
    assert abs(float(loss(method, ROW_SCALES * w)) - value) > 0.1
    assert float(loss(method, 3.0 * w)) == pytest.approx(value, rel=1e-12)
    products = (w * gradient(method, w)).sum(1)
    assert float(products.abs().max()) > 0.1
    assert abs(float(products.sum())) < 1e-11


def test_T12_group_norm_is_invariant_per_group() -> None:
    """GN: the unit that may be scaled, and that is orthogonal to its gradient, is the group of rows."""
    w = randn(M, N)
    per_group = torch.tensor([0.5, 3.0], dtype=torch.float64).repeat_interleave(3)[:, None]
    assert float(loss("GN", per_group * w)) == pytest.approx(float(loss("GN", w)), rel=1e-12)
    products = (w * gradient("GN", w)).sum(1).unflatten(0, (2, -1)).sum(1)
    assert float(products.abs().max()) < 1e-11


def test_T12_scale_invariance_holds_for_positive_factors_only() -> None:
    """A negative factor changes the BatchNorm loss, and 0 would force a constant: Lemma 2 needs λ > 0."""
    w = randn(M, N)
    assert abs(float(loss("BN", -w)) - float(loss("BN", w))) > 0.1
    assert loss("BN", 0 * w).isnan()


def norm_growth(make: Callable[[list[Tensor]], torch.optim.Optimizer], steps: int = 3) -> list[float]:
    """‖W⁺‖² − ‖W‖² − η²‖∇‖² along training of a BatchNorm layer at rate η = 0.01."""
    w = randn(M, N).requires_grad_()
    optimizer, gaps = make([w]), []
    for _ in range(steps):
        before = float(w.detach().square().sum())
        optimizer.zero_grad()
        loss("BN", w).backward()
        growth = 0.01**2 * float(w.grad.square().sum())
        optimizer.step()
        gaps.append(float(w.detach().square().sum()) - before - growth)
    return gaps


def test_T13_norm_growth_is_exact_for_plain_sgd_only() -> None:
    """‖W⁺‖² = ‖W‖² + η²‖∇‖² holds step by step without, and fails with, momentum, Adam or weight decay."""
    assert max(map(abs, norm_growth(lambda p: torch.optim.SGD(p, 0.01)))) < 1e-12
    assert max(map(abs, norm_growth(lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)))) > 1e-3
    assert max(map(abs, norm_growth(lambda p: torch.optim.Adam(p, 0.01)))) > 1e-3
    assert min(norm_growth(lambda p: torch.optim.SGD(p, 0.01, weight_decay=0.5))) < -1e-3  # it may even shrink


def test_T14_agreement_of_gamma_and_sigma_is_not_identifiable() -> None:
    """Scaling the weights leaves the outputs, γ and β as they are, and moves |γ²−σ²| and |β−μ| anywhere."""
    w, x = randn(1, N), randn(N, B, seed=1) + 1
    y = w @ x
    gamma, beta = float(y.std(correction=0)), float(y.mean())  # perfect agreement at this scale of the weights
    out = gamma * standardize(y) + beta
    for scale in (0.1, 10.0):
        rescaled = scale * w @ x
        torch.testing.assert_close(gamma * standardize(rescaled) + beta, out)
        assert abs(gamma**2 - float(rescaled.var(correction=0))) > 0.9 * gamma**2
        assert abs(beta - float(rescaled.mean())) > 0.5 * abs(beta)
    direction = unit_rows(w) @ x, unit_rows(10 * w) @ x
    torch.testing.assert_close(direction[0].var(correction=0), direction[1].var(correction=0))  # ‖W‖ = 1 decides it


def test_T15_equal_gamma_and_beta_do_not_make_units_alike() -> None:
    """Two units with the same (γ, β) share a sphere, not a place on it: their outputs may be uncorrelated."""
    gamma, beta, batch = 1.5, 0.3, 256
    first, second = gamma * standardize(randn(2, 64) @ randn(64, batch, seed=1)) + beta
    assert float(first.norm()) == pytest.approx(float(second.norm()), rel=1e-12)
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.3
    assert float((first - second).norm()) > gamma * batch**0.5


def test_T17_gradient_shrinks_with_the_weights_size() -> None:
    """∇L(λW) = ∇L(W)/λ: a step on λW equals one on W at the rate η/λ², so runs compare at equal η/‖W‖² only."""
    w, scale, rate = randn(M, N), 5.0, 0.01
    torch.testing.assert_close(gradient("BN", scale * w), gradient("BN", w) / scale)
    stepped = scale * w - rate * gradient("BN", scale * w)
    matched = w - rate / scale**2 * gradient("BN", w)
    unmatched = w - rate * gradient("BN", w)
    assert float(loss("BN", stepped)) == pytest.approx(float(loss("BN", matched)), rel=1e-12)
    assert abs(float(loss("BN", stepped)) - float(loss("BN", unmatched))) > 0.1


def test_T18_weight_decay_leaves_the_data_loss_invariant() -> None:
    """The gradient of the data loss stays orthogonal to the weights; the decay acts along them and on no output."""
    w = randn(M, N)
    decay = 0.1 * w
    assert float((gradient("BN", w) * decay).sum().abs()) < 1e-11
    assert float(loss("BN", w - decay)) == pytest.approx(float(loss("BN", w)), rel=1e-12)


def test_T18_weight_decay_sets_the_effective_learning_rate() -> None:
    """With noise gradients g̃/‖w‖ across w: ‖w‖⁴ → ηE‖g̃‖²/(2λ), so η/‖w‖² → √(2ηλ)/‖g̃‖. Without decay it only grows."""
    rate, decay, dim, steps = 0.1, 0.01, 16, 6000
    noise = randn(steps, dim)

    def run(decay_rate: float) -> Tensor:
        w, sizes = torch.ones(dim, dtype=torch.float64), torch.empty(steps, dtype=torch.float64)
        for k in range(steps):
            square = w @ w
            tangent = noise[k] - (noise[k] @ w) / square * w
            w = (1 - rate * decay_rate) * w - rate * tangent / square.sqrt()
            sizes[k] = square
        return sizes

    predicted = (rate * (dim - 1) / (2 * decay)) ** 0.5  # of ‖w‖²; a tangent normal vector has E‖g̃‖² = dim − 1
    settled = float(run(decay)[steps // 2 :].mean())
    assert settled == pytest.approx(predicted, rel=0.03)
    assert rate / settled == pytest.approx((2 * rate * decay / (dim - 1)) ** 0.5, rel=0.03)
    free = run(0.0)
    assert bool((free.diff() > 0).all())
    assert float(free[-1]) > 3 * predicted


class Classifier(nn.Module):
    """Linear, BatchNorm and ReLU twice, then a head; in eval mode, with the statistics of the given batch."""

    def __init__(self, x: Tensor, scale: float = 1.0, head_scale: float = 1.0) -> None:
        super().__init__()
        shapes = [(12, x.shape[1]), (12, 12)]
        self.weights = [scale * randn(*shape, seed=i) for i, shape in enumerate(shapes)]
        self.norms = nn.ModuleList(nn.BatchNorm1d(12, eps=1e-30, momentum=None).double() for _ in shapes)
        self.head = head_scale * randn(3, 12, seed=9)
        self(x)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        for w, norm in zip(self.weights, self.norms, strict=True):
            x = norm(x @ w.T).relu()
        return x @ self.head.T

    def input_gradient(self, x: Tensor, labels: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(self(x), labels), x)
        return g


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_T19_size_of_invariant_weights_does_not_amplify_attacks(scale: float) -> None:
    """Rescaling every normalized weight leaves logits, input gradients and the attack built on them unchanged."""
    x, labels = randn(64, 8, seed=5), torch.arange(64) % 3
    plain, rescaled, louder = Classifier(x), Classifier(x, scale), Classifier(x, head_scale=scale)
    g = plain.input_gradient(x, labels)
    torch.testing.assert_close(rescaled(x), plain(x))
    torch.testing.assert_close(rescaled.input_gradient(x, labels), g)
    attacked = x + 0.1 * g.sign()
    torch.testing.assert_close(rescaled(attacked), plain(attacked))
    assert float((louder.input_gradient(x, labels) - g).norm() / g.norm()) > 0.5  # the head is not invariant
