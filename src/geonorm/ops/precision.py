"""The dtypes that statistics are computed in."""

from __future__ import annotations

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute with values of a dtype: float32 for half precision, else the same."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of numbers per group: float64, unless the device has none."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def wide(values: Tensor) -> Tensor:
    """The values in the widest dtype of their device."""
    return values.to(wide_dtype(values.device))
