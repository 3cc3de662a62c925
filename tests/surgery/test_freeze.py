"""`freeze` survives `train()`, for torch's layers and ours; `unfreeze` undoes it."""

import copy
import pickle

import pytest
import torch
from torch import nn

import geonorm


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), geonorm.AugBatchNorm2d(4), geonorm.PopNorm2d(4), nn.GroupNorm(2, 4)
    )


def statistics(model: nn.Module) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


def test_frozen_norms_keep_their_statistics_in_training() -> None:
    model, x = net(), torch.randn(2, 3, 8, 8)
    report = geonorm.freeze(model)
    assert [change.name for change in report.changed] == ["1", "2", "3"]
    assert [left.name for left in report.left] == ["4"]
    before, expected = statistics(model), model.eval()(x)
    model.train()
    torch.testing.assert_close(model(x), expected)
    assert all(map(torch.equal, statistics(model), before))
    model.train()(x).sum().backward()
    assert model[1].weight.grad is not None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_is_frozen_too_and_apart(copied) -> None:
    model, x = net(), torch.randn(2, 3, 8, 8)
    geonorm.freeze(model)
    clone = copied(model)
    geonorm.unfreeze(model)
    before = statistics(clone)
    clone.train()(x)
    assert all(map(torch.equal, statistics(clone), before))
    model.train()(x)
    assert model[1].num_batches_tracked == 1


def test_twice_and_back() -> None:
    model = net()
    geonorm.freeze(model)
    assert not geonorm.freeze(model).changed
    report = geonorm.unfreeze(model)
    assert len(report.changed) == 3
    assert not geonorm.unfreeze(model).changed
    assert all(module.training for module in model.modules())
    assert not model[1]._forward_pre_hooks


def test_parameters_too() -> None:
    model = net()
    model[1].bias.requires_grad_(False)
    geonorm.freeze(model, affine=True)
    assert not any(p.requires_grad for layer in model[1:] for p in layer.parameters())
    assert model[0].weight.requires_grad
    assert not geonorm.freeze(model, affine=True).changed
    geonorm.unfreeze(model)
    assert model[4].weight.requires_grad
    assert not model[1].bias.requires_grad  # it was not freeze that stopped it


def test_where() -> None:
    model = net()
    assert [change.name for change in geonorm.freeze(model, where="1").changed] == ["1"]
    assert [change.name for change in geonorm.unfreeze(model, where=["1"]).changed] == ["1"]


def test_convert_keeps_a_frozen_layer_frozen() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3))
    geonorm.freeze(model)
    geonorm.convert(model, "aug(phi=1.5)")
    model.train()(torch.randn(2, 3, 4, 4))
    assert model[0].num_batches_tracked == 0


@pytest.mark.slow
def test_compiled() -> None:
    model, x = net()[1:4], torch.randn(2, 4, 6, 6)
    geonorm.freeze(model)
    before = statistics(model)
    compiled = torch.compile(model.train(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    model.train()
    compiled(x)
    assert all(map(torch.equal, statistics(model), before))
