"""The values that a norm normalizes together: its axes by name, and its input as rows, one for each sphere."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..nn._pop import PopLayer
from .layouts import BOTH, CHANNELS_FIRST, description_of, layout_of, own_forward

# The unit that has its own sphere, in words.
UNITS = {"batch": "channel", "instance": "channel of a sample", "group": "group of a sample", "layer": "sample"}


def axes_of(norm: nn.Module) -> str | None:
    """``"batch"``, ``"instance"``, ``"group"`` or ``"layer"``; ``None`` if the norm's axes are not known."""
    if isinstance(norm, nn.SyncBatchNorm):
        return "batch"
    if isinstance(norm, nn.RMSNorm):
        return "layer"
    described = description_of(norm)
    if described is None or described.layer.axes == "graph":
        return None
    is_known = described.layer.placement == "before" or layout_of(norm) is not None
    return described.layer.axes if is_known else None


def rows_of(norm: Any, x: Tensor) -> Tensor:
    """The values of an input, one row for each sphere. For a batch norm the rows are the channels."""
    axes = axes_of(norm)
    if axes == "batch":
        return x.movedim(1, 0).reshape(x.shape[1], -1)
    if axes == "layer":
        if own_forward(norm) in (CHANNELS_FIRST, BOTH):
            x = x.movedim(1, -1)
        return x.reshape(-1, math.prod(norm.normalized_shape))
    if axes == "group":
        return x.reshape(x.shape[0] * norm.num_groups, -1)
    assert axes == "instance"
    layout = layout_of(norm)
    if layout is not None and layout.dim is not None and x.dim() == layout.dim + 1:  # one sample without a batch
        x = x.unsqueeze(0)
    return x.reshape(x.shape[0] * x.shape[1], -1)


def channel_affine(norm: Any) -> tuple[Tensor, Tensor] | None:
    """γ and β of a norm that has one of each per channel and shifts after it divides; ones and zeros if it has none."""
    if axes_of(norm) not in ("batch", "instance") or isinstance(norm, PopLayer):
        return None
    weight, bias = norm.weight, norm.bias
    home = next((t for t in (weight, bias, norm.running_mean) if isinstance(t, Tensor)), None)
    device = None if home is None else home.device
    gamma = torch.ones(norm.num_features, device=device) if weight is None else weight.detach()
    beta = torch.zeros(norm.num_features, device=device) if bias is None else bias.detach()
    return gamma.double(), beta.double()
