"""`recalibrate`: the statistics of the pooled values, exactly, and nothing lost when something fails."""

import math

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.functional import center, spread

BATCHES = [torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(n)) * (n + 1) + n for n in (5, 2, 9)]
POOLED = torch.cat(BATCHES)
DIMS = (0, 2, 3)


def exact(x: Tensor, dims=DIMS) -> tuple[Tensor, Tensor]:
    return x.double().mean(dims), x.double().var(dims)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(3), geonorm.AugBatchNorm2d(3, phi=2.0), geonorm.PopNorm2d(3)])
def test_mean_and_variance(layer) -> None:
    model = nn.Sequential(layer)
    report = geonorm.recalibrate(model, BATCHES)
    assert report.changed[0].after == f"{16 * 16} values in 3 batches"
    mean, var = exact(POOLED)
    close(layer.running_mean, mean)
    close(layer.running_var, var)
    assert layer.num_batches_tracked == 3


@pytest.mark.parametrize("phi", [1.0, 1.2, 1.5, 3.0, math.inf])
@pytest.mark.parametrize("kind", ["rms", "mean_abs", "max_abs", "robust"])
def test_pooled_center_and_spread(phi: float, kind: str) -> None:
    layer = geonorm.AugBatchNorm2d(3, phi=phi, spread=kind)
    geonorm.recalibrate(nn.Sequential(layer), BATCHES)
    middle = center(POOLED, phi, DIMS)
    close(layer.running_center, middle)
    close(layer.running_mean, exact(POOLED)[0])
    close(layer.running_var, exact(POOLED)[1])
    if layer.running_scale is not None:
        close(layer.running_scale, spread(POOLED - middle.view(1, 3, 1, 1), kind, DIMS).square())


def test_learned_phi_and_pop_with_extremes() -> None:
    layer = geonorm.AugBatchNorm2d(3, learn_phi=True)
    layer.phi_offset.data.uniform_(-1, 1)
    pop = geonorm.PopNorm2d(3, spread="max_abs", phi=1.5)
    geonorm.recalibrate(nn.ModuleList([layer, pop]), BATCHES, lambda model, batch: [m(batch) for m in model])
    close(layer.running_center, center(POOLED, layer.phi.detach(), DIMS))
    close(pop.running_upper, POOLED.amax(DIMS) - pop.running_center)
    close(pop.running_lower, pop.running_center - POOLED.amin(DIMS))


@pytest.mark.parametrize("make", [nn.InstanceNorm2d, geonorm.AugInstanceNorm2d])
def test_instances_count_alike(make) -> None:
    layer = make(3, track_running_stats=True)
    geonorm.recalibrate(nn.Sequential(layer), BATCHES)
    close(layer.running_mean, POOLED.mean((2, 3)).mean(0))
    close(layer.running_var, POOLED.var((2, 3)).mean(0))
    if isinstance(layer, geonorm.AugInstanceNorm2d):
        close(layer.running_center, center(POOLED, 1.5, (2, 3)).mean(0))


@pytest.mark.parametrize("memory", [1 << 30, 4000, 3100, 100])
def test_little_memory_takes_more_passes(memory: int) -> None:
    passes = []

    class Counted(list):
        def __iter__(self):
            passes.append(1)
            return super().__iter__()

    layers = nn.ModuleList([geonorm.AugBatchNorm2d(3, phi=1.2), geonorm.AugBatchNorm2d(3, phi=4.0)])
    report = geonorm.recalibrate(layers, Counted(BATCHES), lambda model, x: [m(x) for m in model], memory=memory)
    size = POOLED.numel() * 4
    assert size == 3072
    for layer in layers:
        close(layer.running_mean, exact(POOLED)[0])
        if memory >= size:
            close(layer.running_center, center(POOLED, layer.phi, DIMS))
        else:
            share = torch.tensor([len(b) / len(POOLED) for b in BATCHES]).view(-1, 1)
            close(layer.running_center, (torch.stack([center(b, layer.phi, DIMS) for b in BATCHES]) * share).sum(0))
    if memory < size:
        assert "averaged over batches" in report.changed[0].note


def test_half_precision_takes_half_the_memory() -> None:
    layers = nn.ModuleList([geonorm.AugBatchNorm2d(3, phi=phi) for phi in (1.2, 4.0)]).bfloat16()
    batches = [batch.bfloat16() for batch in BATCHES]
    half = POOLED.numel() * 2
    report = geonorm.recalibrate(layers, batches, lambda model, x: [m(x) for m in model], memory=half)
    assert [change.note for change in report.changed] == ["", ""]


def test_masks_and_unequal_sizes() -> None:
    layer = geonorm.AugBatchNorm1d(2, phi=1.5)
    batches = [(torch.randn(3, 2, 5), torch.rand(3, 1, 5) > 0.3), (torch.randn(4, 2, 7), torch.rand(4, 1, 7) > 0.3)]
    geonorm.recalibrate(nn.Sequential(layer), batches, lambda model, batch: model[0](batch[0], mask=batch[1]))
    rows = torch.cat([x.movedim(1, -1)[mask.squeeze(1)] for x, mask in batches])
    close(layer.running_mean, rows.mean(0))
    close(layer.running_var, rows.var(0))
    close(layer.running_center, center(rows, 1.5, 0))


def test_only_the_norms_train_and_modes_come_back() -> None:
    class Probe(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert not self.training
            return x

    model = nn.Sequential(nn.BatchNorm2d(3), Probe(), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)).train()
    geonorm.freeze(model, where="3")
    report = geonorm.recalibrate(model, BATCHES)
    assert [left.reason for left in report.left] == ["frozen; unfreeze it first"]
    assert model[1].training
    assert model[3].num_batches_tracked == 0
    # what comes behind a norm sees batches normalized by their own statistics
    inner = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    geonorm.recalibrate(inner.eval(), BATCHES)
    close(inner[1].running_mean, torch.zeros(3))
    assert not inner[0].training


def test_a_failure_changes_nothing() -> None:
    model = nn.Sequential(geonorm.AugBatchNorm2d(3), nn.BatchNorm2d(3))
    buffers = dict(model.named_buffers())
    before = {key: value.clone() for key, value in buffers.items()}

    def batches():
        yield BATCHES[0]
        raise KeyboardInterrupt

    def bad(model: nn.Module, batch: Tensor) -> None:
        model(batch)
        raise RuntimeError("bad batch")

    with pytest.raises(KeyboardInterrupt):
        geonorm.recalibrate(model, batches())
    with pytest.raises(RuntimeError, match="bad batch"):
        geonorm.recalibrate(model, BATCHES, bad)
    with pytest.raises(ValueError, match="at least one batch"):
        geonorm.recalibrate(model, [])
    with pytest.raises(TypeError, match="forward=lambda"):
        geonorm.recalibrate(model, [{"x": BATCHES[0]}])
    for key, value in model.named_buffers():
        assert value is buffers[key]
        assert torch.equal(value, before[key])
    assert all(module.training for module in model.modules())
    assert not model[0]._forward_pre_hooks


def test_not_finite_and_not_reached() -> None:
    model = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])
    report = geonorm.recalibrate(model, [torch.full((2, 3, 4, 4), math.nan)], lambda model, x: model[0](x))
    assert [left.name for left in report.left] == ["0", "1"]
    assert "not finite" in report.left[0].reason
    assert "no batch" in report.left[1].reason
    assert torch.equal(model[0].running_mean, torch.zeros(3))


def test_an_iterator_and_tuples() -> None:
    layer = geonorm.AugBatchNorm2d(3, phi=1.5)
    geonorm.recalibrate(nn.Sequential(layer), ((x, 0) for x in BATCHES))
    close(layer.running_center, center(POOLED, 1.5, DIMS))
