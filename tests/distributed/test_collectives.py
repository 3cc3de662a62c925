"""How many collectives a synced layer makes, on ordinary data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import geonorm
from helpers.process_group import count_collectives, run_in_processes

# Forward and backward, at most.
MOST = {
    "phi=2": (geonorm.AugBatchNorm2d, {"phi": 2.0}, 1, 1),
    "pop": (geonorm.PopNorm2d, {}, 1, 1),
    "phi=1.5": (geonorm.AugBatchNorm2d, {"phi": 1.5}, 4, 1),
    "robust": (geonorm.AugBatchNorm2d, {"phi": 1.5, "spread": "robust"}, 8, 1),
    "median": (geonorm.AugBatchNorm2d, {"phi": 1.0}, 6, 1),
}


def batch(kind: str, shape: tuple[int, ...], rank: int) -> torch.Tensor:
    """Channels of their own mean and scale, alike in all processes."""
    torch.manual_seed(1)
    mean, scale = torch.randn(1, shape[1], 1, 1), torch.rand(1, shape[1], 1, 1) + 0.1
    torch.manual_seed(2 + rank)
    x = torch.randn(shape) * scale
    return (x + 0.1 * mean).relu() if kind == "rectified" else x + mean


def count(rank: int, size: int) -> dict[tuple[Any, ...], tuple[int, int]]:
    found = {}
    for shape in ((16, 64, 8, 8), (32, 16, 32, 32)):
        for kind in ("normal", "rectified"):
            for name, (layer, options, *_) in MOST.items():
                module = layer(shape[1], process_group="world", **options)
                x = batch(kind, shape, rank).requires_grad_()
                with count_collectives() as number:
                    y = module(x)
                    forward = number[0]
                    y.square().sum().backward()
                found[name, kind, shape] = (forward, number[0] - forward)
    return found


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_few_collectives(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEONORM_BACKEND", backend)
    numbers = run_in_processes(2, count)
    assert numbers[0] == numbers[1]
    for (name, *case), (forward, backward) in numbers[0].items():
        _, _, most_forward, most_backward = MOST[name]
        assert forward <= most_forward, (name, case, forward)
        assert backward <= most_backward, (name, case, backward)
