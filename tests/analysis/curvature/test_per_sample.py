"""The variance of gradients over samples, against plain loops in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import curvature
from helpers.float64_classifier import classifier, labelled_batch


def loop_variance(model: nn.Module, batches: list[tuple[Tensor, Tensor]], alone: bool) -> tuple[float, float]:
    """E‖∇f_i − ∇F‖² and ‖∇F‖² by one backward after another; ``alone``: each sample a batch of its own."""
    rows = []
    for x, y in batches:
        for i in range(len(x)):
            model.zero_grad()
            if alone:
                nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            else:
                nn.functional.cross_entropy(model(x), y, reduction="none")[i].backward()
            rows.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    model.zero_grad()
    stacked = torch.stack(rows)
    mean = stacked.mean(0)
    return float((stacked - mean).square().sum(1).mean()), float(mean.square().sum())


def test_variance_in_evaluation_is_that_of_a_loop_over_samples() -> None:
    model, batches = classifier().train(), [labelled_batch(40), labelled_batch(5)]
    model(batches[0][0])
    model.eval()
    found = curvature(model, batches, hessian=False)
    assert found.how == "vmap"
    assert found.samples == 45
    assert (found.blocks[0].variance, found.blocks[0].gradient) == pytest.approx(
        loop_variance(model, batches, alone=True), rel=1e-12
    )
    slow = curvature(model, batches, hessian=False, how="backward")
    assert slow.blocks[0].variance == pytest.approx(found.blocks[0].variance, rel=1e-12)


def test_variance_in_training_has_the_whole_batch_in_the_graph() -> None:
    """Sample i's term depends on the others: it is not what the sample alone, or the batch as one, would give."""
    model, batches = classifier().train(), [labelled_batch(12), labelled_batch(7)]
    found = curvature(model, batches, hessian=False)
    assert found.how == "backward"
    with geonorm.no_stat_update():
        expected = loop_variance(model, batches, alone=False)
    assert (found.blocks[0].variance, found.blocks[0].gradient) == pytest.approx(expected, rel=1e-12)
    by_batch = curvature(model, batches, hessian=False, how="batches")
    assert by_batch.samples == 2
    assert by_batch.blocks[0].variance < 0.5 * found.blocks[0].variance
    evaluated = curvature(model.eval(), batches, hessian=False)
    assert abs(evaluated.blocks[0].variance / found.blocks[0].variance - 1) > 0.01
    assert "one per mini-batch" in by_batch.table()
    assert "evaluation" in evaluated.table()


def test_what_torch_func_cannot_run_goes_sample_by_sample() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if float(x.detach().sum()) > -1e9 else x

    model = nn.Sequential(nn.Linear(4, 3), Branch()).double().eval()
    assert curvature(model, labelled_batch(), hessian=False).how == "backward"
    with pytest.raises(RuntimeError):
        curvature(model, labelled_batch(), hessian=False, how="vmap")


def test_norms_without_running_statistics_join_samples_in_evaluation_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)).double()
    batch = torch.randn(8, 4).double(), torch.arange(8) % 3
    found = curvature(model.eval(), batch, hessian=False)
    assert found.how == "backward"
    assert found.blocks[0].variance == pytest.approx(curvature(model.train(), batch, hessian=False).blocks[0].variance)
    with pytest.raises(ValueError, match="running statistics"):
        curvature(model.eval(), batch, hessian=False, how="vmap")
