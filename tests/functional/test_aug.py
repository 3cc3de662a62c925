"""aug_norm: pure, the same in blocks as whole, lean in memory, and clear about mistakes."""

import math
import re

import pytest
import torch

from geonorm.functional import affine_norm, aug_norm, center, pop_norm, spread
from geonorm.ops import using_backend
from geonorm.ops.torch import normalize as on_torch


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["rms", "mean_abs", "max_abs", 3.0, "robust"])
@pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, math.inf])
def test_definition(phi: float, kind: str | float) -> None:
    x, gamma, beta, alpha = tensor(6, 3, 4), tensor(1, 3, 1, seed=1), tensor(1, 3, 1, seed=2), tensor(1, 3, 1, seed=3)
    y, statistics = aug_norm(x, (0, 2), phi, alpha=alpha, weight=gamma, bias=beta, spread=kind, eps=1e-3)
    c = center(x, phi, (0, 2), keepdim=True)
    z = x - alpha * c
    s = spread(z, kind, (0, 2), keepdim=True)
    torch.testing.assert_close(y, gamma * z / (s.square() + 1e-3).sqrt() + beta)
    torch.testing.assert_close(statistics.center, c)
    torch.testing.assert_close(statistics.spread, s)
    torch.testing.assert_close(statistics.mean, x.mean((0, 2), keepdim=True))
    torch.testing.assert_close(statistics.var, x.var((0, 2), correction=0, keepdim=True))
    assert bool((statistics.mass == 24).all())


def test_nothing_is_mutated() -> None:
    arguments = [tensor(6, 3), tensor(1, 3, seed=1), tensor(1, 3, seed=2)]
    copies = [value.clone() for value in arguments]
    aug_norm(arguments[0], 0, weight=arguments[1], bias=arguments[2])
    assert all(torch.equal(a, b) for a, b in zip(arguments, copies, strict=True))


@pytest.mark.parametrize("dims", [(0, 2), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["rms", "robust"])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_change_nothing(dims, kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for block in (1 << 20, 10):
        monkeypatch.setattr(on_torch, "_BLOCK", block)
        x = tensor(5, 6, 7).requires_grad_()
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
        phi = (1.3 + tensor(*shape, seed=1).abs()).requires_grad_()
        leaves = [tensor(1, 6, 1, seed=2), tensor(6, 7, seed=3), tensor(1, 6, 1, seed=4), tensor(5, 6, 7, seed=5).abs()]
        alpha, gamma, beta, weight = (leaf.requires_grad_() for leaf in leaves)
        share = weight if weighted else None
        with using_backend("torch"):
            y, statistics = aug_norm(
                x, dims, phi, alpha=alpha, weight=gamma, bias=beta, spread=kind, element_weight=share
            )
        inputs = [x, phi, alpha, gamma, beta, *([weight] if weighted else [])]
        scale = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape)
        loss = (y * scale).sum() + statistics.center.square().sum() + statistics.spread.sum()
        results.append([y, *statistics, *torch.autograd.grad(loss, inputs)])
    for whole, cut in zip(*results, strict=True):
        torch.testing.assert_close(cut, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"spread": "robust"}, {"phi": 2.0}, {"spread": "max_abs"}])
def test_backward_keeps_the_input_and_little_else(options: dict) -> None:
    x = torch.randn(64, 8, 10, 10, requires_grad=True)
    gamma, beta = torch.ones(1, 8, 1, 1, requires_grad=True), torch.zeros(1, 8, 1, 1, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        aug_norm(x, (0, 2, 3), weight=gamma, bias=beta, **options)
    kept.pop(x.untyped_storage().data_ptr())
    assert sum(kept.values()) < 0.02 * x.untyped_storage().nbytes()


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("kind", ["rms", "robust"])
def test_extreme_magnitudes(scale: float, kind: str) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    y = aug_norm((x.double() * scale).float(), 0, spread=kind, eps=0.0).output
    torch.testing.assert_close(y, aug_norm(x, 0, spread=kind, eps=0.0).output, rtol=1e-4, atol=1e-5)


def test_offset_of_a_million_deviations() -> None:
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    moved = x + 2**20
    y, exact = aug_norm(moved, 0).output, aug_norm(moved.double(), 0).output
    assert (y - exact).abs().max() < 0.1  # the data themselves are rounded to 1/16 there


def test_constant_and_single_values() -> None:
    assert aug_norm(torch.full((7, 2), 3.0), 0).output.abs().max() == 0
    assert aug_norm(torch.tensor(3.0)).output.item() == 0
    assert aug_norm(torch.randn(4, 1), 1).output.abs().max() == 0


def test_grad_floor_spreads_the_gradient() -> None:
    """A value next to the center carries most of the gradient at φ=1.2; the floor takes that away."""
    x = tensor(1, 400).requires_grad_()
    shares = []
    for floor in (0.0, 0.05):
        (g,) = torch.autograd.grad(aug_norm(x, 1, 1.2, grad_floor=floor).statistics.center.sum(), x)
        assert g.sum().item() == pytest.approx(1)
        shares.append(g.max().item())
    assert shares[1] < 0.5 * shares[0]


def test_compiles_where_nothing_needs_a_gradient() -> None:
    """As in inference: Dynamo then goes another way through the function than in training."""
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(lambda x: aug_norm(x, 1).output, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), aug_norm(x, 1).output)


def test_affine_norm() -> None:
    x = torch.randn(4, 3, 5)
    mean, var = torch.randn(3), torch.rand(3) + 0.5
    weight, bias = torch.randn(3), torch.randn(3)
    expected = torch.nn.functional.batch_norm(x, mean, var, weight, bias)
    parts = [value.reshape(1, 3, 1) for value in (mean, var, weight, bias)]
    torch.testing.assert_close(affine_norm(x, parts[0], parts[1], weight=parts[2], bias=parts[3]), expected)
    assert affine_norm(x.half(), parts[0], parts[1]).dtype == torch.float16


ERRORS = [
    (lambda: aug_norm(torch.arange(3), 0), TypeError, "x.float()"),
    (lambda: aug_norm(torch.randn(3, 4), 0, torch.ones(3)), ValueError, "expected phi to broadcast"),
    (lambda: aug_norm(torch.randn(3, 4), 0, weight=torch.ones(3)), ValueError, "expected weight to broadcast to x"),
    (lambda: aug_norm(torch.randn(3, 4), 0, alpha=torch.ones(3)), ValueError, "expected alpha to broadcast to x"),
    (lambda: aug_norm(torch.randn(3, 4), 0, spread="std"), ValueError, "expected spread to be one of"),
    (lambda: aug_norm(torch.randn(3, 4), 0, element_weight=-torch.ones(3, 4)), ValueError, "finite weight >= 0"),
    (lambda: aug_norm(torch.randn(3, 4), 0, element_weight=torch.zeros(3, 4)), ValueError, "weights are all zero"),
    (lambda: aug_norm(torch.randn(0, 4), 0), ValueError, "at least one value"),
    (lambda: aug_norm(torch.randn(3, 4), batch=torch.tensor([0, 1])), ValueError, "one entry per row"),
    (lambda: aug_norm(torch.randn(3, 4), 0, batch=torch.tensor([0, 1, 1])), ValueError, "dim or batch, not both"),
    (lambda: aug_norm(torch.randn(3, 4), 0, spread="robust", spread_phi=0.5), ValueError, "expected spread_phi"),
    (lambda: aug_norm(torch.randn(3, 4), 0, spread="robust", spread_floor=-1), ValueError, "expected spread_floor"),
    (lambda: aug_norm(torch.randn(3, 4), 0, grad_floor=-1), ValueError, "expected grad_floor >= 0"),
    (lambda: pop_norm(torch.randn(3, 4), 0, kappa=0.0), ValueError, "expected kappa > 0"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=[text[:30] for *_, text in ERRORS])
def test_errors(call, error, text) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
