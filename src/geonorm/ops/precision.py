"""In which dtype things are computed."""

from __future__ import annotations

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the values: statistics of half precision are float32."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def wide_dtype(device: torch.device) -> torch.dtype:
    """Of numbers per group: float64, unless the device has none."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def wide(values: Tensor) -> Tensor:
    """In the widest dtype of its device."""
    return values.to(wide_dtype(values.device))
