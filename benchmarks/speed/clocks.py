"""How long a call takes on a device: the CPU is timed by the system's clock, a GPU by its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

Call: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[Call, int], float]  # mean seconds of a number of calls


def cpu_seconds(call: Call, number: int) -> float:
    """On the CPU, where a call returns when its work is done."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def cuda_seconds(call: Call, number: int) -> float:
    """On a GPU, where a call returns when its work is queued: from one event in the queue to another."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(number):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / number


def mps_seconds(call: Call, number: int) -> float:
    """On an Apple GPU: from an empty queue to an empty queue."""

    def run() -> None:
        for _ in range(number):
            call()
        torch.mps.synchronize()

    torch.mps.synchronize()
    return cpu_seconds(run, 1) / number


CLOCKS: Mapping[str, Clock] = {"cpu": cpu_seconds, "cuda": cuda_seconds, "mps": mps_seconds}
# Seconds of work before anything is timed: a GPU that was idle runs at a low frequency.
WARM_UP: Mapping[str, float] = {"cpu": 0.0, "cuda": 0.1, "mps": 0.1}
