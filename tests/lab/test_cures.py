"""What a recipe can do against broken samples: clipped inputs, clipped gradients, samples without a finite loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from geonorm.lab import Recipe
from geonorm.lab.data import Split, Task, clipped
from geonorm.lab.runner import _prepared
from geonorm.lab.train import Training

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 2


def task_of(x: torch.Tensor) -> Task:
    split = Split(x, Y)
    return Task("t", split, split, 2, (3,), mean=torch.zeros(3), std=torch.ones(3))


def trained(x: torch.Tensor, **fields: Any) -> tuple[nn.Linear, float, float]:
    """A linear network after one step on all samples: it, how far its parameters moved, and the loss."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    before = torch.cat([parameter.detach().clone().flatten() for parameter in model.parameters()])
    run = Recipe(norms=("bn",), seeds=(0,), batch_size=8, lr=1.0, momentum=0.0, **fields).runs()[0]
    loss = Training(model, task_of(x), run.choices).epoch()["loss"]
    after = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return model, float((after - before).norm()), loss


def test_gradients_are_clipped() -> None:
    assert trained(1000 * X)[1] > 10
    assert trained(1000 * X, clip_gradients=0.5)[1] == pytest.approx(0.5, rel=1e-4)
    assert trained(X, clip_gradients=1e6)[1] == trained(X)[1]


def test_samples_without_a_finite_loss_are_left_out() -> None:
    broken = X.clone()
    broken[2] = math.nan
    assert not math.isfinite(trained(broken)[2])
    _, _, loss = trained(broken, skip_nonfinite=True)
    torch.manual_seed(0)
    kept = torch.arange(8) != 2
    expected = nn.functional.cross_entropy(nn.Linear(3, 2)(X[kept]), Y[kept])
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert trained(X, skip_nonfinite=True)[1] == pytest.approx(trained(X)[1], rel=1e-6)


def test_a_step_without_any_finite_loss_is_left_out() -> None:
    _, moved, loss = trained(torch.full_like(X, math.inf), skip_nonfinite=True)
    assert moved == 0
    assert not math.isfinite(loss)


def test_inputs_are_clipped_after_they_are_broken() -> None:
    recipe = Recipe(norms=("bn",), corruptions=("gain(share=1, strength=100)",), seeds=(0,), clip_inputs=2.0)
    found = _prepared(task_of(X), recipe.runs()[0])
    torch.testing.assert_close(found.train.x, (100 * X).clamp(-2, 2))
    torch.testing.assert_close(found.test.x, X.clamp(-2, 2))


def test_clipping_goes_by_channel_and_leaves_the_task_alone() -> None:
    x = torch.full((2, 2, 3, 3), 9.0)
    split = Split(x, torch.arange(2))
    task = Task(
        "t", split, split, 2, (2, 3, 3), valid=split, mean=torch.tensor([0.0, 1.0]), std=torch.tensor([1.0, 2.0])
    )
    found = clipped(task, 3)
    for part in (found.train, found.test, found.valid):
        assert part is not None
        assert part.x[:, 0].unique().tolist() == [3.0]
        assert part.x[:, 1].unique().tolist() == [7.0]
    assert (x == 9).all()
    assert clipped(task, 0) is task
    with pytest.raises(ValueError, match="with mean and std, to clip them"):
        clipped(Task("t", split, split, 2, (2, 3, 3)), 3)


def test_they_are_part_of_a_key_only_where_they_act() -> None:
    """Stores from before they were there know their runs."""
    plain = Recipe(seeds=(0,)).runs()[0]
    assert not {"clip_inputs", "clip_gradients", "skip_nonfinite"} & set(plain.choices)
    cures: list[dict[str, Any]] = [{"clip_inputs": 5}, {"clip_gradients": 1}, {"skip_nonfinite": True}]
    assert len({plain.key, *[Recipe(seeds=(0,), **cure).runs()[0].key for cure in cures]}) == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip_inputs": -1}, "expected clip_inputs above 0, or 0 for none"),
        ({"clip_gradients": "1"}, "expected clip_gradients to be a number"),
        ({"skip_nonfinite": 1}, "skip_nonfinite to be true or false"),
        ({"skip_nonfinite": True, "losses": ("cvar(alpha=0.2)",)}, "the loss 'erm' alone and one process"),
    ],
)
def test_mistakes(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)
