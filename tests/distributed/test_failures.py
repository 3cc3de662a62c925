"""A process that dies or hangs in the middle of a step: the others say so and end."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import geonorm
from helpers.process_group import run_in_processes
from helpers.slow_cases import slow_except

TIMEOUT = 5.0


def dies(rank: int, size: int) -> tuple[str, float]:
    """Rank 1 leaves between two collectives of one forward."""
    layer = geonorm.AugBatchNorm1d(4, phi=1.3, process_group="world")
    layer(torch.randn(6, 4))
    original, calls = dist.all_gather, [0]

    def leaving(*arguments: Any) -> Any:
        calls[0] += 1
        if rank == 1 and calls[0] == 2:
            os._exit(9)
        return original(*arguments)

    dist.all_gather = leaving
    return fails(layer)


def hangs(rank: int, size: int) -> tuple[str, float]:
    """Rank 1 never comes to the layer."""
    layer = geonorm.PopNorm1d(4, process_group="world")
    layer(torch.randn(6, 4))
    if rank == 1:
        time.sleep(TIMEOUT + 4)
        return "", 0.0
    return fails(layer)


def fails(layer: torch.nn.Module) -> tuple[str, float]:
    start = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        layer(torch.randn(6, 4))
    return str(caught.value), time.monotonic() - start


@pytest.mark.parametrize("accident", slow_except([dies], [dies, hangs]))
def test_the_others_end_with_an_error(accident: Any) -> None:
    found = run_in_processes(2, accident, timeout=TIMEOUT, survivors=1)
    text, seconds = found[0]
    assert "failed in a normalization" in text
    assert "restart all processes" in text
    assert seconds < TIMEOUT + 5


def test_without_a_group_the_cure_is_named() -> None:
    assert not dist.is_initialized()
    layer = geonorm.AugBatchNorm1d(4, process_group="world")
    with pytest.raises(RuntimeError, match=r"init_process_group.*unsync"):
        layer(torch.randn(6, 4))
    assert layer.eval()(torch.randn(6, 4)).shape == (6, 4)
    geonorm.unsync(layer)
    assert layer.train()(torch.randn(6, 4)).shape == (6, 4)
