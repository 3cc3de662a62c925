"""What the cases of a group share: data in parts, and errors that must come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist

SIZE = 2


def data(rank: int, sizes: tuple[int, ...] = (5, 9), seed: int = 0, shape: tuple[int, ...] = (4,)) -> tuple[Any, Any]:
    """The whole batch, and this process's part."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn((sum(sizes), *shape), generator=generator, dtype=torch.float64)
    return whole, whole.split(list(sizes))[rank].clone()


def refuses(function: Callable[[], Any], match: str, kind: type[Exception] = RuntimeError) -> None:
    with pytest.raises(kind, match=match):
        function()


@contextmanager
def counted() -> Iterator[list[int]]:
    """Within, collectives of statistics are counted."""
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
