"""Moments that are pooled over batches are those of all values at once."""

import pytest
import torch

from geonorm.introspect.moments import Moments, PooledMoments


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_pooled_is_what_all_values_give_at_once(offset: float, weighted: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 3, 5) + offset
    weight = torch.rand(30, 3, 5) if weighted else torch.ones(30, 3, 5)
    weight[:4] = 0  # batches that count for nothing
    x[0, 0, 0] = torch.nan if weighted else x[0, 0, 0]
    pooled = PooledMoments()
    for begin in (0, 4, 5, 17):
        end = {0: 4, 4: 5, 5: 17, 17: 30}[begin]
        pooled.add(x[begin:end], weight[begin:end] if weighted else None)
    w = weight.double() if weighted else torch.ones(30, 3, 5).double()
    values = torch.where(w > 0, x, 0.0).double()
    mean = (w * values).sum((0, 2)) / w.sum((0, 2))
    squares = (w * (values - mean.view(1, 3, 1)).square()).sum((0, 2))
    torch.testing.assert_close(pooled.mean, mean, rtol=1e-12, atol=1e-7)  # deviations are taken in x's own float32
    torch.testing.assert_close(pooled.squares, squares, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(pooled.var(1), squares / (w.sum((0, 2)) - 1), rtol=1e-5, atol=0.0)


def test_too_few_values_have_no_variance() -> None:
    pooled = PooledMoments()
    pooled.add(torch.ones(1, 2))
    assert bool(pooled.var(1).isnan().all())
    assert pooled.var().tolist() == [0.0, 0.0]


def test_rows_of_several_batches() -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 50, dtype=torch.float64) * 2 + 1
    moments = Moments()
    for part in (rows[:, :20], rows[:, 20:21], rows[:, 21:]):
        moments.add(part)
    torch.testing.assert_close(moments.mean, rows.mean(1))
    torch.testing.assert_close(moments.var, rows.var(1, correction=0))
    assert moments.sample().shape == rows.shape


def test_the_moments_that_are_handed_in_stay_as_they_were() -> None:
    """``diagnose`` keeps them, to compare the places of a shared norm."""
    moments, rows = Moments(), torch.randn(3, 50, dtype=torch.float64)
    var, mean = torch.var_mean(rows, 1, correction=0)
    before = mean.clone(), var.clone()
    moments.add(rows, (var, mean))
    moments.add(rows + 5)
    assert torch.equal(mean, before[0])
    assert torch.equal(var, before[1])
