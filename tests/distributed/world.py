"""A group of processes on this machine that runs one function of a test and brings back what each returned."""

import datetime
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(size: int, function: Callable[..., Any], *arguments: Any, timeout: float = 120.0) -> list[Any]:
    """``function(rank, size, *arguments)`` in every process; results in the order of ranks.

    One that raises shows its traceback in the error.
    """
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        processes = [
            context.Process(target=_work, args=(rank, size, store, timeout, results, function, arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        found = dict(results.get() for _ in processes)
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.kill()
    failures = [value for value in found.values() if isinstance(value, _Failure)]
    assert not failures, "\n".join(failure.text for failure in failures)
    return [found[rank] for rank in range(size)]


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _work(
    rank: int, size: int, store: Path, timeout: float, results: Any, function: Callable[..., Any], arguments: Any
) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=timeout),
        )
        found = function(rank, size, *arguments)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        found = _Failure(f"rank {rank}:\n{traceback.format_exc()}")
    results.put((rank, found))
