"""`no_stat_update`: statistics stand still, and checkpointing updates them once."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import geonorm

LAYERS = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(3),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "AugBatchNorm2d": lambda: geonorm.AugBatchNorm2d(3, learn_phi=True),
    "AugInstanceNorm2d": lambda: geonorm.AugInstanceNorm2d(3, track_running_stats=True, phi=3.0),
    "PopNorm2d": lambda: geonorm.PopNorm2d(3, spread="max_abs"),
}


def statistics(model: nn.Module) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


@pytest.mark.parametrize("name", LAYERS)
class TestEveryLayer:
    def test_nothing_moves_and_the_output_is_the_same(self, name: str) -> None:
        layer, x = LAYERS[name](), torch.randn(4, 3, 5, 5) + 2
        before = statistics(layer)
        with geonorm.no_stat_update(), geonorm.no_stat_update():
            still = layer(x)
        assert all(map(torch.equal, statistics(layer), before))
        assert torch.equal(layer(x), still)
        assert not all(map(torch.equal, statistics(layer), before))

    def test_checkpointing_updates_once(self, name: str) -> None:
        torch.manual_seed(0)
        layer, x = nn.Sequential(LAYERS[name](), nn.Tanh()), torch.randn(4, 3, 5, 5, requires_grad=True)
        plain = nn.Sequential(LAYERS[name](), nn.Tanh())
        plain(x).square().sum().backward()
        expected, x.grad = x.grad, None

        def contexts():
            return nullcontext(), geonorm.no_stat_update()

        checkpoint(layer, x, use_reentrant=False, context_fn=contexts).square().sum().backward()
        torch.testing.assert_close(x.grad, expected)
        for mine, theirs in zip(layer.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs)

    def test_an_error_inside_restores_everything(self, name: str) -> None:
        layer = LAYERS[name]()
        before, buffers = statistics(layer), dict(layer.named_buffers())
        with pytest.raises((ValueError, RuntimeError)), geonorm.no_stat_update():
            layer(torch.randn(2, 7, 5, 5))
        assert all(map(torch.equal, statistics(layer), before))
        assert all(buffers[key] is value for key, value in layer.named_buffers())
        layer(torch.randn(2, 3, 5, 5))
        assert not all(map(torch.equal, statistics(layer), before))


@pytest.mark.parametrize("name", ["BatchNorm2d", *[pytest.param(name, marks=pytest.mark.slow) for name in LAYERS][1:]])
def test_compiled_graphs_obey(name: str) -> None:
    torch._dynamo.reset()
    layer, x = LAYERS[name](), torch.randn(4, 3, 5, 5)
    compiled = torch.compile(layer, backend="aot_eager")
    compiled(x)
    before = statistics(layer)
    with geonorm.no_stat_update():
        compiled(x)
    assert all(map(torch.equal, statistics(layer), before))
    compiled(x)
    assert not all(map(torch.equal, statistics(layer), before))
