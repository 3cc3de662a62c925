"""Corruptions: how many samples, by how much, from which seed; and the original untouched."""

import itertools

import pytest
import torch

from geonorm.lab.data import DEGRADATIONS, ImageFiles, Split, Task, corrupt, corrupt_task, degrade

KINDS = ["offset", "gain", "heavy_tails", "feature", "noise", "stuck", "minority", "labels", "spurious"]


def images() -> Split:
    generator = torch.Generator().manual_seed(0)
    return Split(torch.rand(100, 3, 8, 8, generator=generator), torch.arange(100) % 5)


@pytest.mark.parametrize("kind", KINDS)
def test_by_seed_and_without_touching_the_original(kind: str) -> None:
    split = images()
    x, y = split.x.clone(), split.y.clone()
    first, again, other = (corrupt(split, kind, 0.2, seed) for seed in (0, 0, 1))
    assert torch.equal(split.x, x)
    assert torch.equal(split.y, y)
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not (torch.equal(first.x, other.x) and torch.equal(first.y, other.y))


@pytest.mark.parametrize("kind", ["offset", "gain", "heavy_tails", "feature", "noise", "stuck", "minority"])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_share_of_the_samples(kind: str, share: float) -> None:
    split = images()
    changed = (corrupt(split, kind, share).x != split.x).flatten(1).any(1)
    assert changed.sum() == 100 * share


def test_amounts() -> None:
    split = images()
    std = split.x.std()
    torch.testing.assert_close(corrupt(split, "offset", 1.0).x, split.x + 10 * std)
    torch.testing.assert_close(corrupt(split, "gain", 1.0, strength=3).x, 3 * split.x)
    one = corrupt(split, "feature", 1.0).x != split.x
    assert (one.flatten(1).sum(1) == 1).all()
    assert (one.flatten(1).long().argmax(1).unique()).numel() == 1  # the same pixel in all
    assert (corrupt(split, "feature", 1.0).x[one] == 100).all()
    noise = corrupt(split, "noise", 1.0, strength=0.5).x - split.x
    assert abs(noise.std() - 0.5) < 0.01  # 19,200 values: a standard error of 0.0026
    assert (corrupt(split, "stuck", 1.0, strength=0.5).x == 0.5).all()
    tails = ((corrupt(split, "heavy_tails", 1.0).x - split.x) / std).abs()
    assert abs(tails.median() - 1) < 0.05  # the median of |Cauchy| is 1, here with a standard error of 0.011
    assert tails.max() > 100


def test_wrong_labels() -> None:
    split = images()
    noisy = corrupt(split, "labels", 0.3)
    wrong = noisy.y != split.y
    assert wrong.sum() == 30
    assert set(noisy.y.tolist()) == set(range(5))
    assert torch.equal(noisy.x, split.x)
    with pytest.raises(ValueError, match="two different labels"):
        corrupt(Split(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)), "labels")


def test_spurious_attribute() -> None:
    split = images()
    marked = corrupt(split, "spurious", 0.1)
    assert marked.groups.sum(0).tolist() == [90, 10]
    shown = (marked.x[:, 0, 0, 0] * 4).round().long()
    assert torch.equal(shown == split.y, marked.groups[:, 0])
    assert torch.equal(marked.x[:, :, 2:, 2:], split.x[:, :, 2:, 2:])
    assert (marked.x[:, :, :2, :2] == marked.x[:, :1, :1, :1]).all()
    table = corrupt(Split(torch.zeros(10, 4), torch.arange(10) % 2), "spurious", 0.2)
    assert table.x.shape == (10, 5)
    assert torch.equal(table.x[:, 4] == table.y, table.groups[:, 0])


def test_labels_of_two_classes_swap() -> None:
    split = Split(torch.zeros(50, 1, dtype=torch.int64), torch.arange(50) % 2)
    noisy = corrupt(split, "labels", 0.4)
    assert (noisy.y != split.y).sum() == 20
    assert torch.equal(noisy.y[noisy.y != split.y], 1 - split.y[noisy.y != split.y])


def test_spurious_attribute_of_a_task() -> None:
    """Every sample has it, on one scale, and the shape and the statistics follow."""
    split = Split(torch.zeros(40, 3), torch.arange(40) % 4)
    task = Task("t", split, split.take(torch.arange(20)), 5, (3,), mean=torch.zeros(3), std=torch.ones(3))
    marked = corrupt_task(task, "spurious", share=0.1)
    assert marked.input_shape == (4,)
    assert len(marked.mean) == len(marked.std) == 4
    assert [part.groups.sum(0).tolist() for part in (marked.train, marked.test)] == [[36, 4], [10, 10]]
    for part in (marked.train, marked.test):
        assert torch.equal((part.x[:, 3] * 4).round().long() == part.y, part.groups[:, 0])
    other = corrupt_task(task, "offset", share=0.5)
    assert torch.equal(other.test.x, task.test.x)


def test_minority_of_a_task() -> None:
    """A share of the training samples, half of those for testing, and the groups say which."""
    split = images()
    task = Task("t", split, split.take(torch.arange(20)), 5, (3, 8, 8), valid=split.take(torch.arange(10)))
    mixed = corrupt_task(task, "minority", share=0.1, strength=4)
    assert mixed.group_names == ("majority", "minority")
    for part, own, number in ((mixed.train, split, 10), (mixed.test, task.test, 10), (mixed.valid, task.valid, 5)):
        few = part.groups[:, 1]
        assert few.sum() == number
        assert torch.equal(part.groups[:, 0], ~few)
        assert torch.equal(part.x[few], 4 * own.x[few])
        assert torch.equal(part.x[~few], own.x[~few])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: corrupt(s, "rain"), "unknown corruption 'rain'; known: offset"),
        (lambda s: corrupt(s, "gain", 1.5), "share to be from 0 to 1"),
        (lambda s: corrupt(s, "labels", strength=2), "'labels' has no strength"),
        (
            lambda s: corrupt(Split(ImageFiles(["a"], 4), s.y[:1]), "gain"),
            r"got ImageFiles\); for images in files make",
        ),
        (lambda s: degrade(s, "fog", 1), "unknown degradation 'fog'"),
        (lambda s: degrade(s, "blur", 6), "severity to be 1, 2, 3, 4 or 5"),
        (lambda s: degrade(Split(s.x.flatten(1), s.y), "blur", 1), "expected images in memory"),
        (lambda s: degrade(Split(255 * s.x, s.y), "contrast", 1), "values from 0 to 1"),
        (lambda s: degrade(Split((255 * s.x).byte(), s.y), "contrast", 1), "floating-point values"),
        (lambda s: corrupt(Split((9 * s.x).long(), s.y), "offset"), "floating-point samples for 'offset'"),
    ],
)
def test_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(images())


@pytest.mark.parametrize("kind", DEGRADATIONS)
def test_degradations_grow_with_severity(kind: str) -> None:
    split = images()
    x = split.x.clone()
    distances = [(degrade(split, kind, severity).x - x).square().mean() for severity in range(1, 6)]
    assert all(a < b for a, b in itertools.pairwise(distances))
    worst = degrade(split, kind, 5)
    assert torch.equal(split.x, x)
    assert 0 <= worst.x.min() <= worst.x.max() <= 1
    assert torch.equal(worst.x, degrade(split, kind, 5).x)


def test_blur_keeps_what_is_even() -> None:
    flat = Split(torch.full((2, 3, 8, 8), 0.25), torch.tensor([0, 1]))
    torch.testing.assert_close(degrade(flat, "blur", 5).x, flat.x)
    point = torch.zeros(1, 1, 33, 33)
    point[0, 0, 16, 16] = 1
    blurred = degrade(Split(point, torch.zeros(1)), "blur", 3).x[0, 0]
    torch.testing.assert_close(blurred.sum(), torch.tensor(1.0))
    torch.testing.assert_close(blurred, blurred.T)
    torch.testing.assert_close(blurred, blurred.flip(0))
