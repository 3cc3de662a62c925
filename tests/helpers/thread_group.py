"""Groups over several processes, with threads in their place: quick, and as many as one likes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from geonorm.ops import Axes


class ThreadGroup(Axes):
    """As ``Across``; ``collectives`` counts."""

    joint = True

    def __init__(self, dims: tuple[int, ...], rank: int, table: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(dims)
        self.rank, self.table, self.barrier = rank, table, barrier
        self.collectives = 0

    @property
    def here(self) -> Axes:
        return Axes(self.dims)

    def gather(self, values: Tensor) -> Tensor:
        self.collectives += 1
        self.table[self.rank] = values
        self.barrier.wait()
        found = torch.stack(list(self.table))
        self.barrier.wait()
        return found

    def join(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        sent = torch.cat([value.double().reshape(-1) for value in statistics])
        total = self.gather(sent).sum(0)
        parts = total.split([value.numel() for value in statistics])
        return tuple(part.view(value.shape).to(value.dtype) for part, value in zip(parts, statistics, strict=True))


def run_in_threads(dims: tuple[int, ...], size: int, function: Callable[[ThreadGroup, int], Any]) -> list[Any]:
    """``function(groups, rank)`` in so many threads; results in the order of ranks."""
    table, barrier = [None] * size, threading.Barrier(size, timeout=60)

    def work(rank: int) -> Any:
        try:
            return function(ThreadGroup(dims, rank, table, barrier), rank)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as workers:
        return list(workers.map(work, range(size)))
