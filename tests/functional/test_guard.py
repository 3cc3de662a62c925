"""The guard as a function: its derivatives with frozen factors, under transforms and compilers, and its errors."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacrev, vmap

import geonorm
from geonorm.functional import aug_norm, guard
from geonorm.functional._pull import pull

KINDS = [
    ("AugBatchNorm2d", {"phi": 2.0}),
    ("AugBatchNorm2d", {"phi": 2.0, "learn_alpha": True, "alpha": 0.8}),
    ("AugBatchNorm2d", {"phi": 1.5}),
    ("AugBatchNorm2d", {"phi": 1.5, "spread": "robust"}),
    ("AugBatchNorm2d", {"learn_phi": True, "phi": 1.6}),
    ("PopNorm2d", {}),
    ("PopNorm2d", {"order": "scale_first", "spread": "max_abs"}),
]
IDS = ["mean", "alpha", "phi", "robust", "learned", "pop", "pop-max"]
kinds = pytest.mark.parametrize(("kind", "options"), KINDS, ids=IDS)


def batch(*shape: int, seed: int = 0) -> torch.Tensor:
    """Samples 2 and 5 are far out."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[2] *= 40
    x[5] += 100
    return x


def layer_of(kind: str, options: dict, channels: int, **more: object) -> torch.nn.Module:
    layer = getattr(geonorm, kind)(channels, dtype=torch.float64, **options, **more)
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.add_(
                torch.linspace(-0.2, 0.3, parameter.numel(), dtype=torch.float64).reshape(parameter.shape) * i
            )
    return layer


def frozen(x: torch.Tensor) -> torch.Tensor:
    """x' by plain autograd, with y and f as constants."""
    found = guard(x.detach())
    f, y = found.factor.reshape(-1, 1, 1, 1), found.center.reshape(-1, 1, 1)
    return y + f * (x - y)


@kinds
def test_gradient_is_that_of_frozen_factors(kind: str, options: dict) -> None:
    """Output, first and second derivatives, buffers: those of the unguarded layer on y + f·(x − y)."""
    x = batch(8, 3, 2, 3)
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for guarded in (True, False):
        layer = layer_of(kind, options, 3, guard=3.0 if guarded else None)
        values = x.clone().requires_grad_()
        y = layer(values if guarded else frozen(values))
        inputs = [values, *layer.parameters()]
        first = torch.autograd.grad((y * weight).sum(), inputs, create_graph=True)
        smooth = "max_abs" not in options.values()
        second = torch.autograd.grad(sum(g.square().sum() for g in first), values)[0] if smooth else values
        buffers = [b for name, b in layer.named_buffers() if name != "guard_counts"]
        results.append([y, *first, second, *buffers])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_gradcheck_with_a_frozen_verdict() -> None:
    x = batch(7, 2, 3).requires_grad_()
    verdict = guard(x.detach())
    assert (verdict.factor < 1).nonzero().flatten().tolist() == [2, 5]

    def pulled(x: torch.Tensor) -> torch.Tensor:
        return pull(x, verdict.factor, verdict.center)

    assert torch.equal(pulled(x), verdict.output)
    for f in (pulled, lambda x: aug_norm(pulled(x), (0, 2), 2.0)[0], lambda x: aug_norm(pulled(x), (0, 2), 1.5)[0]):
        assert gradcheck(f, x)
        assert gradgradcheck(f, x)


def test_gradient_of_the_function_is_the_factor() -> None:
    x = batch(8, 3, 4)
    x[6, 1, 0] = math.nan
    x = x.requires_grad_()
    found = guard(x)
    found.output.nansum().backward()
    expected = torch.where(found.factor.isnan(), 0.0, found.factor)
    torch.testing.assert_close(x.grad, expected.reshape(-1, 1, 1).expand_as(x))
    assert not any(value.requires_grad for value in found[1:])


class TestFunctionTransforms:
    X = torch.stack([batch(8, 3, 2, 3, seed=seed) for seed in range(3)])

    @kinds
    def test_vmap_and_jacrev_of_a_layer(self, kind: str, options: dict) -> None:
        """In training, without running statistics, as an unguarded layer; nothing is counted."""
        layer = layer_of(kind, options, 3, guard=3.0, track_running_stats=False)
        expected = torch.stack([layer(x) for x in self.X])
        counts = layer.guard_counts.clone()
        assert counts.tolist() == [3, 3, 6, 0]
        torch.testing.assert_close(vmap(layer)(self.X), expected)
        x = self.X[0].clone().requires_grad_()
        layer(x).square().sum().backward()
        counts = layer.guard_counts.clone()
        torch.testing.assert_close(grad(lambda v: layer(v).square().sum())(self.X[0]), x.grad)
        mapped = vmap(grad(lambda v: layer(v).square().sum()))(self.X)
        torch.testing.assert_close(mapped[0], x.grad)
        plain = torch.autograd.functional.jacobian(lambda v: layer(v)[0, 0, 0], self.X[0])
        counts = layer.guard_counts.clone()
        torch.testing.assert_close(jacrev(lambda v: layer(v)[0, 0, 0])(self.X[0]), plain)
        assert torch.equal(layer.guard_counts, counts)

    def test_with_running_statistics_it_is_an_error_unless_they_are_paused(self) -> None:
        layer = layer_of("AugBatchNorm2d", {}, 3, guard=3.0)
        with pytest.raises(RuntimeError, match=r"in-?place"):
            vmap(layer)(self.X)
        with geonorm.no_stat_update():
            expected = torch.stack([layer(x) for x in self.X])
            torch.testing.assert_close(vmap(layer)(self.X), expected)
        assert layer.guard_counts.tolist() == [0, 0, 0, 0]

    def test_the_function(self) -> None:
        mapped = vmap(lambda x: guard(x).output)(self.X)
        torch.testing.assert_close(mapped, torch.stack([guard(x).output for x in self.X]))
        rows = jacrev(lambda x: guard(x).output.sum((1, 2, 3)))(self.X[0]).sum((2, 3, 4)) / 18
        torch.testing.assert_close(rows, guard(self.X[0]).factor.diag())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [KINDS[0], KINDS[2], KINDS[3], KINDS[5]])
def test_compiled(kind: str, options: dict) -> None:
    """One graph, forward and backward; clean batches, pulled samples and samples that are not finite.

    In float64: below φ = 2 a gradient in float32 turns on the last digit of values next to the center.
    """
    clean = torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pulled = clean.clone()
    pulled[3] *= 100
    broken = pulled.clone()
    broken[5, 1, 0, 0] = math.nan
    torch.compiler.reset()
    plain, layer = (getattr(geonorm, kind)(3, guard=3.0, dtype=torch.float64, **options) for _ in range(2))
    compiled = torch.compile(layer, fullgraph=True)
    for x in (clean, pulled, broken):
        results = []
        for module, own in ((plain, plain), (compiled, layer)):
            own.zero_grad()
            values = x.clone().requires_grad_()
            y = module(values)
            (y * torch.linspace(-1, 2, 48).reshape(3, 4, 4)).nansum().backward()
            results.append([y, values.grad, *(p.grad for p in own.parameters()), *own.buffers()])
        for found, expected in zip(*reversed(results), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7, equal_nan=True)
    assert layer.guard_counts.tolist() == [3, 2, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"k": 0.99}, ValueError, "expected 1 <= k < inf"),
        ({"k": math.inf}, ValueError, "expected 1 <= k < inf"),
        ({"k": math.nan}, ValueError, "expected 1 <= k < inf"),
        ({"k": True}, TypeError, "expected k to be a number"),
        ({"k": "3"}, TypeError, "expected k to be a number"),
        ({"k": None}, TypeError, "expected k to be a number"),
        ({"k": torch.tensor(3.0)}, TypeError, "expected k to be a number"),
        ({"sample_dim": 1}, ValueError, "to differ"),
        ({"sample_dim": -1}, ValueError, "to differ"),
        ({"channel_dim": 2}, IndexError, "expected channel_dim in"),
        ({"sample_dim": -3}, IndexError, "expected sample_dim in"),
        ({"sample_dim": True}, TypeError, "expected sample_dim to be an int"),
        ({"channel_dim": "1"}, TypeError, "expected channel_dim to be an int"),
        ({"x": torch.ones(5, 3, dtype=torch.int64)}, TypeError, "floating-point dtype"),
        ({"x": torch.ones(5, 3, dtype=torch.complex64)}, TypeError, "floating-point dtype"),
        ({"x": [[1.0]]}, TypeError, "torch.Tensor"),
        ({"x": torch.ones(5)}, ValueError, "a dimension of samples"),
        ({"x": torch.ones(0, 3)}, ValueError, "at least one value"),
        ({"x": torch.ones(5, 3, 0)}, ValueError, "at least one value"),
        ({"mask": torch.ones(7)}, ValueError, "broadcast"),
        ({"mask": [True]}, TypeError, "expected weight|expected mask"),
    ],
)
def test_errors(arguments: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        guard(**{"x": torch.randn(5, 3), **arguments})
