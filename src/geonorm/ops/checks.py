"""Checks that need the data. Inside an operator they also raise in compiled graphs and under vmap."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from .grouping import Axes, Grouping, Segments


def can_read_values(*values: Tensor | None) -> bool:
    """Whether Python may read the values of these tensors.

    Not while a compiler traces, under a torch.func transform, or if a tensor is fake. Not on a device other than the
    CPU either: a read would wait for the device.
    """
    if torch.compiler.is_compiling():
        return False
    return not any(value is not None and _is_opaque(value) for value in values)


def _is_opaque(value: Tensor) -> bool:
    if not value.is_cpu or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return True
    return type(value) is not Tensor and type(value) is not Parameter and hasattr(value, "fake_mode")


def exports_to_onnx() -> bool:
    """Whether the graph being traced is for ONNX, which has fewer operators than torch."""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def check_exponent(phi: Tensor) -> None:
    """Raise unless φ ≥ 1 everywhere; NaN raises too."""
    if not bool((phi >= 1).all()):
        worst = math.nan if bool(phi.isnan().any()) else float(phi.min())
        raise ValueError(
            f"expected phi >= 1 (got {worst}): below 1 the sum of |x - y|^phi is not convex and has no unique minimum; "
            "use phi=1 for the median, or bound a learned phi from below"
        )


def check_values(weight: Tensor | None, groups: Grouping, empty_ok: bool = False) -> None:
    """Raise unless weights are usable and segments are in range. Does nothing where the data cannot be read.

    ``empty_ok``: a group may have no weight above 0.
    """
    if weight is not None and can_read_values(weight):
        _check_weight(weight, groups, empty_ok)
    if isinstance(groups, Segments) and len(groups.index) and can_read_values(groups.index):
        low, high = int(groups.index.min()), int(groups.index.max())
        if low < 0 or high >= groups.number:
            raise ValueError(
                f"expected batch entries in [0, {groups.number}) (got values from {low} to {high}); "
                "pass batch_size, or renumber the segments from 0"
            )


def _check_weight(weight: Tensor, groups: Grouping, empty_ok: bool) -> None:
    bad = weight[~(weight >= 0) | weight.isinf()]
    wrong, empty = torch.tensor([len(bad) > 0]), torch.tensor([False])
    if isinstance(groups, Axes) and not empty_ok:
        some = (weight > 0).to(torch.uint8)
        empty = (
            ~groups.here.max(some).bool().flatten()
            if some.numel()
            else torch.ones(_group_count(some, groups), dtype=torch.bool)
        )
    if isinstance(groups, Axes) and groups.joint:  # all processes raise, or none
        flags = groups.gather(torch.cat([wrong, ~empty]).to(torch.uint8)).bool()
        wrong, empty = flags[:, :1].any(0), ~flags[:, 1:].any(0)
    if bool(wrong):
        got = bad[0].item() if len(bad) else "one in another process"
        raise ValueError(f"expected finite weight >= 0 (got {got}); use 0 to ignore an entry")
    if bool(empty.any()):
        raise ValueError(
            "expected weight > 0 for at least one entry of every group (got a group whose weights are all zero); "
            "drop that group, or use segment_center, where an empty group gives 0"
        )


def _group_count(values: Tensor, groups: Axes) -> int:
    """The number of groups."""
    return math.prod([n for d, n in enumerate(values.shape) if d not in groups.dims])
