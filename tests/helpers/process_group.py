"""A group of processes on this machine, a batch split over it, errors it must raise, and a count of collectives."""

import datetime
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = 2


def run_in_processes(
    size: int, function: Callable[..., Any], *arguments: Any, timeout: float = 120.0, survivors: int | None = None
) -> list[Any]:
    """``function(rank, size, *arguments)`` in every process; results in the order of ranks.

    One that raises shows its traceback in the error. With ``survivors``, only the first so many are waited for, and
    they need not leave the group in order.
    """
    ends_well = survivors is None
    waited = size if survivors is None else survivors
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        processes = [
            context.Process(target=_work, args=(rank, size, store, timeout, results, ends_well, function, arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        found: dict[int, Any] = {}
        while len(found.keys() & range(waited)) < waited:
            rank, value = results.get()
            found[rank] = value
        for process in processes:
            process.join(30 if ends_well else 0)
            if process.is_alive():
                process.kill()
    answers = [found[rank] for rank in range(waited)]
    failures = [value.text for value in answers if isinstance(value, _Failure)]
    assert not failures, "\n".join(failures)
    return answers


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _work(
    rank: int,
    size: int,
    store: Path,
    timeout: float,
    results: Any,
    ends_well: bool,
    function: Callable[..., Any],
    arguments: Any,
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
        if ends_well:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        found = _Failure(f"rank {rank}:\n{traceback.format_exc()}")
    results.put((rank, found))


def whole_and_part(
    rank: int, sizes: tuple[int, ...] = (5, 9), seed: int = 0, shape: tuple[int, ...] = (4,)
) -> tuple[Any, Any]:
    """The whole batch, and this process's part."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn((sum(sizes), *shape), generator=generator, dtype=torch.float64)
    return whole, whole.split(list(sizes))[rank].clone()


def assert_refused(function: Callable[[], Any], match: str, kind: type[Exception] = RuntimeError) -> None:
    """Every process must refuse."""
    with pytest.raises(kind, match=match):
        function()


@contextmanager
def count_collectives() -> Iterator[list[int]]:
    """Counts the collectives made within the block."""
    number = [0]
    names = ("all_reduce", "all_gather", "broadcast")
    originals = {name: getattr(dist, name) for name in names}

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            number[0] += 1
            return original(*arguments, **options)

        return call

    for name, original in originals.items():
        setattr(dist, name, counting(original))
    try:
        yield number
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
