"""What once went wrong around the kernels: hooks, transforms, saved tensors, default devices."""

from __future__ import annotations

import math

import pytest
import torch

import geonorm
from geonorm.functional import aug_norm
from geonorm.ops import choose, using_backend

pytestmark = pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for")


def test_the_output_may_be_changed_in_place() -> None:
    """As ReLU(inplace=True) behind a norm does."""
    for layer in (geonorm.AugBatchNorm2d(3), geonorm.PopNorm2d(3), geonorm.AugGroupNorm(1, 3)):
        x = torch.randn(4, 3, 5, 5, requires_grad=True)
        expected = torch.autograd.grad(layer(x).relu().square().sum(), x)
        found = torch.autograd.grad(layer(x).relu_().square().sum(), x)
        torch.testing.assert_close(found, expected)


class TestOnceWrong:
    """Each of these was once wrong on the native path alone."""

    def test_parameters_in_the_order_of_memory(self) -> None:
        x, b = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 1, 1)
        last = x.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(aug_norm(last, 1, 2.0, bias=b).output, aug_norm(x, 1, 2.0, bias=b).output)
        x, w = torch.randn(3, 4).t(), torch.rand(4, 3)
        expected = aug_norm(x.contiguous(), 0, 2.0, weight=w).output
        torch.testing.assert_close(aug_norm(x, 0, 2.0, weight=w).output, expected)

    def test_a_parameter_that_depends_on_x(self) -> None:
        def gradient() -> torch.Tensor:
            x = torch.linspace(-1, 2, 30).reshape(6, 5).requires_grad_()
            y = aug_norm(x, 0, 1.5, weight=torch.sigmoid(x.mean(0, keepdim=True))).output
            return torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)[0]

        found = gradient()
        with using_backend("torch"):
            torch.testing.assert_close(found, gradient())

    def test_hooks_and_retained_gradients(self) -> None:
        def gradients() -> list[torch.Tensor]:
            x = torch.linspace(-1, 2, 30).reshape(6, 5).pow(2).requires_grad_()
            x.register_hook(lambda g: g * 2)
            inner = x * 1
            inner.retain_grad()
            found = aug_norm(inner, 0, 1.5)
            (found.output.pow(3).sum() + found.statistics.center.sum()).backward()
            return [x.grad, inner.grad]

        found = gradients()
        with using_backend("torch"):
            for mine, theirs in zip(found, gradients(), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)

    def test_forward_mode_is_not_silently_zero(self) -> None:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(torch.randn(6, 5), torch.ones(6, 5))
            with pytest.raises((NotImplementedError, RuntimeError)):
                aug_norm(dual, 0, 1.5)

    def test_a_default_device(self) -> None:
        layer, norm, x = geonorm.AugGraphNorm(4), geonorm.AugBatchNorm1d(4), torch.randn(6, 4, requires_grad=True)
        batch = torch.tensor([0, 0, 1, 1, 1, 1])
        with torch.device("meta"):
            (layer(x, batch, 2).sum() + norm(x).sum()).backward()
        assert x.grad is not None

    def test_captured_by_transforms(self) -> None:
        x, layer = torch.randn(3, 5), geonorm.AugLayerNorm(5)
        expected = layer(x).detach().sum()
        torch.testing.assert_close(torch.func.grad(lambda w: (layer(x) * w).sum())(torch.tensor(2.0)), expected)
        torch.testing.assert_close(torch.vmap(lambda w: (layer(x) * w).sum())(torch.arange(3.0))[1], expected)

    def test_batches_of_gradients(self) -> None:
        x, layer, g = torch.randn(3, 5, requires_grad=True), geonorm.AugLayerNorm(5), torch.randn(4, 3, 5)
        y = layer(x)
        (found,) = torch.autograd.grad(y, x, g, is_grads_batched=True, retain_graph=True)
        expected = torch.stack([torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in g])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_equal_deviations_and_a_large_robust_exponent(self) -> None:
        def gradient() -> torch.Tensor:
            x = torch.tensor([0.0, 1, 0, 1, 1, 0]).reshape(6, 1).requires_grad_()
            y = aug_norm(x, 0, 2.0, spread="robust", spread_phi=4.0).output
            return torch.autograd.grad(y, x, torch.arange(6.0).reshape(6, 1))[0]

        found = gradient()
        with using_backend("torch"):
            torch.testing.assert_close(found, gradient(), rtol=1e-4, atol=1e-5)

    def test_negative_bits(self) -> None:
        x = torch.randn(6, 5, requires_grad=True)
        minus = torch.complex(torch.ones(1), torch.ones(1)).conj().imag
        assert minus.is_neg()
        torch.testing.assert_close(aug_norm(x, 0, 1.5, weight=minus).output, -aug_norm(x, 0, 1.5).output)
        g = torch.rand(6, 5)
        (found,) = torch.autograd.grad(aug_norm(x, 0, 1.5).output, x, torch._neg_view(g))
        (expected,) = torch.autograd.grad(aug_norm(x, 0, 1.5).output, x, -g)
        torch.testing.assert_close(found, expected)

    def test_a_nan_reaches_phi(self) -> None:
        x, phi = torch.randn(4, 8), torch.tensor(1.5, requires_grad=True)
        x[1, 2] = math.nan
        (found,) = torch.autograd.grad(aug_norm(x, -1, phi).output.pow(3).sum(), phi)
        assert found.isnan()

    def test_running_buffers_count_as_changed(self) -> None:
        layer, w = geonorm.AugBatchNorm1d(5), torch.randn(5, requires_grad=True)
        loss = (w * layer.running_mean).sum()
        layer(torch.randn(6, 5))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_backward_under_another_backend(self) -> None:
        x = torch.randn(6, 5, requires_grad=True)
        loss = aug_norm(x, 0, 1.5).output.pow(3).sum()
        with using_backend("torch"):
            loss.backward()
        assert x.grad is not None

    def test_neither_centered_nor_scaled(self) -> None:
        x = torch.randn(6, 5, requires_grad=True)
        geonorm.functional.pop_norm(x, 0, center=False, scale=False).output.sum().backward()
        assert torch.equal(x.grad, torch.ones(6, 5))
