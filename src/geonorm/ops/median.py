"""The two middle values of every group, weighted or not."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import exports_to_onnx
from .grouping import Axes, Grouping, Segments


def _slack() -> float:
    """The rounding of a cumulative weight, relative to the whole. A function, as ``solver.smallest_distance``."""
    return 4 * torch.finfo(torch.float64).eps


def middle_values(x: Tensor, weight: Tensor | None, groups: Grouping) -> tuple[Tensor, Tensor]:
    """Lower and upper (weighted) median of every group; they differ only if exactly half of the weight lies on each
    side.

    A group that holds NaN gives NaN. Where the weight is 0, x must hold some value of its group.
    """
    if isinstance(groups, Segments):
        if not len(x):
            return (x.new_zeros(groups.number, x.shape[1]),) * 2
        lower, upper = _of_segments(x, weight, groups)
    elif groups.joint:
        lower, upper = _by_bisection(x, weight, groups)
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
    reached = weight.gather(1, order).double().cumsum(1)
    half = 0.5 * reached[:, -1:]

    def first_to_reach(threshold: Tensor) -> Tensor:
        return values.gather(1, (reached < threshold).sum(1, keepdim=True).clamp(max=x.shape[1] - 1))

    slack = _slack() * x.shape[1] * half
    return first_to_reach(half - slack), first_to_reach(half + slack)


def _of_segments(x: Tensor, weight: Tensor | None, groups: Segments) -> tuple[Tensor, Tensor]:
    order = x.argsort(dim=0)
    order = order.gather(0, groups.index[order].argsort(dim=0, stable=True))  # by segment, then by value
    values = x.gather(0, order)
    share = torch.ones_like(values, dtype=torch.float64) if weight is None else weight.gather(0, order).double()
    sorted_groups = Segments(groups.index.sort().values, groups.number)
    size = sorted_groups.sum(torch.ones_like(sorted_groups.index))
    start = (size.cumsum(0) - size).unsqueeze(1)
    total = torch.cat([torch.zeros_like(share[:1]), share.cumsum(0)])
    reached = total[1:] - sorted_groups.expand(total[start[:, 0]])
    half = 0.5 * sorted_groups.sum(share)

    def first_to_reach(threshold: Tensor) -> Tensor:
        behind = sorted_groups.sum((reached < sorted_groups.expand(threshold)).long())
        return values.gather(0, (start + behind).clamp(max=len(x) - 1))  # empty segments are overwritten by the caller

    slack = _slack() * (total[-1] + len(x))
    return first_to_reach(half - slack), first_to_reach(half + slack)


def _by_bisection(x: Tensor, weight: Tensor | None, groups: Axes) -> tuple[Tensor, Tensor]:
    """Without sorting or gathering: bisection on the bits of a float, which are ordered as the floats are.

    Every round asks for one number per group, the weight at or below a value, and 32 or 64 rounds reach the exact one.
    """
    bits = torch.int32 if x.dtype == torch.float32 else torch.int64

    def key_of(value: Tensor) -> Tensor:  # its own inverse: the order of negative numbers is turned round
        code = value.view(bits)
        return code ^ ((code >> (8 * code.element_size() - 1)) & torch.iinfo(bits).max)

    def value_of(key: Tensor) -> Tensor:
        return (key ^ ((key >> (8 * key.element_size() - 1)) & torch.iinfo(bits).max)).view(x.dtype)

    def reached(value: Tensor) -> Tensor:
        inside = (x <= value).double()
        return groups.sum(inside if weight is None else inside * weight)

    size = groups.count(x)
    half = 0.5 * (size if weight is None else groups.sum(weight.double()))
    slack = 0.0 if weight is None else _slack() * size * half
    low, high = (key_of(end.contiguous()) for end in groups.extremes(x))
    low = low - 1  # not reached there, reached at high
    for _ in range(8 * x.element_size()):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = reached(value_of(middle)) >= half - slack
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    lower = value_of(high)
    shared = reached(lower) >= half + slack if weight is not None else reached(lower) > half
    following = groups.min(torch.where(x > lower, x, torch.inf))
    return lower, torch.where(shared, lower, following)
