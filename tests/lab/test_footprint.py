"""The memory of a training step: counted by hand, without touching the model, and stored with the first epoch."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import geonorm
from geonorm.lab import Recipe, run
from geonorm.lab.batches import Batch
from geonorm.lab.footprint import bytes_kept
from helpers.assert_model_unchanged import assert_model_unchanged


def batch(samples: int = 16, features: int = 8) -> Batch:
    return Batch((torch.randn(samples, features),), torch.zeros(samples, dtype=torch.long))


def test_counted_by_hand() -> None:
    """Linear keeps its input (16·8 values); a sigmoid keeps its output (16·4); the next Linear keeps that again."""
    model = nn.Sequential(nn.Linear(8, 4), nn.Sigmoid(), nn.Linear(4, 2))
    assert bytes_kept(model, batch()) == 4 * (16 * 8 + 16 * 4)


def test_a_layer_keeps_what_batch_norm_keeps() -> None:
    """The input, and a few numbers for each channel."""
    x = Batch((torch.randn(32, 16, 8, 8),), torch.zeros(32))
    for norm in ("bn", "augbn(phi=1.5)", "guardbn"):
        found = bytes_kept(geonorm.create_norm(norm, 16), x)
        assert 4 * x.inputs[0].numel() <= found < 1.1 * 4 * x.inputs[0].numel(), norm


def test_the_model_and_the_random_numbers_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    samples = batch()
    before = torch.get_rng_state()
    with assert_model_unchanged(model):
        bytes_kept(model, samples)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_first_epoch_stores_it(tmp_path: Path) -> None:
    found = run(Recipe(norms=("bn",), seeds=(0,), epochs=2), tmp_path / "r.sqlite")
    first, second = next(iter(found.curves().values()))
    assert first["steps"] == -(-1438 // 64)
    assert first["bytes_kept"] > 0
    assert not {"steps", "bytes_kept"} & second.keys()
