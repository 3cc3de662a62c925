"""Errors that only the data can tell. Inside an operator they are raised in compiled graphs and under vmap too."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from .grouping import Axes, Grouping, Segments


def can_look(*values: Tensor | None) -> bool:
    """May Python read these tensors?

    Not while a compiler traces, in a torch.func transform, on the meta device, or of tensors that are shapes alone.
    """
    if torch.compiler.is_compiling():
        return False
    return not any(value is not None and _is_opaque(value) for value in values)


def _is_opaque(value: Tensor) -> bool:
    if value.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return True
    return type(value) is not Tensor and type(value) is not Parameter and hasattr(value, "fake_mode")


def exports_to_onnx() -> bool:
    """Is the graph that is being traced one for ONNX, which has fewer operators than torch?"""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def check_exponent(phi: Tensor) -> None:
    """φ ≥ 1, and a number."""
    if not bool((phi >= 1).all()):
        worst = math.nan if bool(phi.isnan().any()) else float(phi.min())
        raise ValueError(
            f"expected phi >= 1 (got {worst}): below 1 the sum of |x - y|^phi is not convex and has no unique minimum; "
            "use phi=1 for the median, or bound a learned phi from below"
        )


def check_values(weight: Tensor | None, groups: Grouping, empty_ok: bool = False) -> None:
    """Weights are usable and segments exist. Says nothing where the data cannot be read.

    ``empty_ok``: a group may have no weight above 0.
    """
    if weight is not None and can_look(weight):
        _check_weight(weight, groups, empty_ok)
    if isinstance(groups, Segments) and len(groups.index) and can_look(groups.index):
        low, high = int(groups.index.min()), int(groups.index.max())
        if low < 0 or high >= groups.number:
            raise ValueError(
                f"expected batch entries in [0, {groups.number}) (got values from {low} to {high}); "
                "pass batch_size, or renumber the segments from 0"
            )


def _check_weight(weight: Tensor, groups: Grouping, empty_ok: bool) -> None:
    bad = weight[~(weight >= 0) | weight.isinf()]
    if bool(groups.agree(torch.tensor([len(bad) > 0], device=weight.device))):  # all processes raise, or none
        got = bad[0].item() if len(bad) else "one in another process"
        raise ValueError(f"expected finite weight >= 0 (got {got}); use 0 to ignore an entry")
    if isinstance(groups, Axes) and not empty_ok and not bool((groups.max(weight) > 0).all()):
        raise ValueError(
            "expected weight > 0 for at least one entry of every group (got a group whose weights are all zero); "
            "drop that group, or use segment_center, where an empty group gives 0"
        )
