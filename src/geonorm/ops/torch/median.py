"""The two middle values of every group, weighted or not."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import exports_to_onnx
from ..grouping import Grouping, Segments
from ..precision import wide


def _slack(weights: Tensor) -> float:
    """The rounding error of a cumulative weight, relative to the total."""
    return 4 * torch.finfo(weights.dtype).eps


def middle_values(x: Tensor, weight: Tensor | None, groups: Grouping) -> tuple[Tensor, Tensor]:
    """Lower and upper (weighted) median of every group; they differ only if exactly half of the weight lies on each
    side.

    A group that holds NaN gives NaN. Where the weight is 0, x must hold some value of its group.
    """
    if isinstance(groups, Segments):
        if not len(x):
            return (x.new_zeros(groups.number, x.shape[1]),) * 2
        lower, upper = _of_segments(x, weight, groups)
    elif weight is None:
        return _of_rows(x)
    else:
        lower, upper = _of_weighted_rows(x, weight)
    broken = groups.sum(x.isnan().to(x.dtype)) > 0  # a sort moves NaN to the end and would hide it
    return torch.where(broken, torch.nan, lower), torch.where(broken, torch.nan, upper)


def _of_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """By selection, which is several times faster than a sort."""
    if exports_to_onnx():  # which has no median
        values, size = x.sort(dim=1).values, x.shape[1]
        broken = x.isnan().any(1, keepdim=True)
        lower, upper = values[:, (size - 1) // 2, None], values[:, size // 2, None]
        return torch.where(broken, torch.nan, lower), torch.where(broken, torch.nan, upper)
    x = x.contiguous()  # torch.median is wrong on expanded tensors
    lower = x.median(dim=1, keepdim=True).values
    if x.shape[1] % 2:
        return lower, lower.clone()
    shared = (x <= lower).sum(1, keepdim=True) > x.shape[1] // 2
    following = torch.where(x > lower, x, torch.inf).amin(1, keepdim=True)
    return lower, torch.where(shared | lower.isnan(), lower, following)


def _of_weighted_rows(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    values, order = x.sort(dim=1)
    reached = wide(weight.gather(1, order)).cumsum(1)
    half = 0.5 * reached[:, -1:]

    def first_to_reach(threshold: Tensor) -> Tensor:
        return values.gather(1, (reached < threshold).sum(1, keepdim=True).clamp(max=x.shape[1] - 1))

    slack = _slack(half) * x.shape[1] * half
    return first_to_reach(half - slack), first_to_reach(half + slack)


def _of_segments(x: Tensor, weight: Tensor | None, groups: Segments) -> tuple[Tensor, Tensor]:
    order = x.argsort(dim=0)
    order = order.gather(0, groups.index[order].argsort(dim=0, stable=True))  # by segment, then by value
    values = x.gather(0, order)
    sorted_weight = wide(torch.ones_like(values) if weight is None else weight.gather(0, order))
    sorted_groups = Segments(groups.index.sort().values, groups.number)
    size = sorted_groups.sum(torch.ones_like(sorted_groups.index))
    start = (size.cumsum(0) - size).unsqueeze(1)
    total = torch.cat([torch.zeros_like(sorted_weight[:1]), sorted_weight.cumsum(0)])
    reached = total[1:] - sorted_groups.expand(total[start[:, 0]])
    half = 0.5 * sorted_groups.sum(sorted_weight)

    def first_to_reach(threshold: Tensor) -> Tensor:
        behind = sorted_groups.sum((reached < sorted_groups.expand(threshold)).long())
        return values.gather(0, (start + behind).clamp(max=len(x) - 1))  # empty segments are overwritten by the caller

    slack = _slack(half) * (total[-1] + len(x))
    return first_to_reach(half - slack), first_to_reach(half + slack)
