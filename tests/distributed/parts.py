"""What the cases of a group share: data in parts, and errors that must come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

SIZE = 2


def data(rank: int, sizes: tuple[int, ...] = (5, 9), seed: int = 0, shape: tuple[int, ...] = (4,)) -> tuple[Any, Any]:
    """The whole batch, and this process's part."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn((sum(sizes), *shape), generator=generator, dtype=torch.float64)
    return whole, whole.split(list(sizes))[rank].clone()


def refuses(function: Callable[[], Any], match: str, kind: type[Exception] = RuntimeError) -> None:
    with pytest.raises(kind, match=match):
        function()
