"""AugNorm as a pure function: normalize around the L^φ center."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..distributed import Group, group_name, grouping
from ..ops import Axes, Inputs, NormStatistics, Rule, Running, Segments, check_values
from ..ops.problem import per_group
from ._arguments import (
    broadcastable,
    check_floating,
    exponent,
    floating,
    reduced_dims,
    renamed_interior,
    segments,
    weights,
)
from ._center import check_sweeps
from ._normalize import make_rule, normalize
from ._segments import by_row, of_segment


class AugNorm(NamedTuple):
    """A normalized tensor, and the statistics it was normalized with."""

    output: Tensor
    statistics: NormStatistics


def aug_norm(
    x: Tensor,
    dim: int | Sequence[int] | None = None,
    phi: float | Tensor = 1.5,
    *,
    alpha: float | Tensor = 1.0,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    spread: str | float = "rms",
    spread_phi: float = 1.5,
    spread_floor: float = 0.05,
    grad_floor: float = 0.0,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
    element_weight: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
    process_group: Group | None = None,
    interior: bool | None = None,
) -> AugNorm:
    """Normalize each group of values around its L^φ center.

        z = x − α·c(x)        y = weight · z / √(s(z)² + eps) + bias

    c is ``center``, s is ``spread``. At φ=2, α=1 and the rms spread this is what BatchNorm, LayerNorm, GroupNorm and
    InstanceNorm do, over their own groups. Nothing is mutated; the statistics are returned with the output. Backward
    keeps x and a few numbers per group. Differentiable in every tensor, twice where the center is.

    Args:
        x: values, of a floating-point dtype; half precision is computed in float32.
        dim: dimension or dimensions that form a group; all by default. Not with ``batch``.
        phi: exponent in [1, ∞], a number or a tensor that broadcasts over the kept dimensions.
        alpha: how much of the center is removed, a number or a tensor that broadcasts to ``x``.
        weight: γ, broadcasts to ``x``.
        bias: β, broadcasts to ``x``.
        eps: added to the square of the spread.
        spread: a kind of ``spread``.
        spread_phi: the exponent of the robust spread.
        spread_floor: the floor of the robust spread.
        grad_floor: in backward, distances to the center are clamped at this fraction of the spread. Stabilizes
            training for φ < 1.5; 0 keeps the exact gradient.
        sweeps: a fixed number of sweeps of the solver, as in ``center``.
        phi_strictly_inside: a tensor ``phi`` is known to lie strictly between 1 and ∞; saves the work for those ends.
        element_weight: non-negative weights or a mask that broadcasts to ``x``: how much each value counts in the
            statistics. Where it is 0 the value is ignored and the output is 0. A group in which all are 0 raises, or
            comes out as 0 where the weights cannot be read, as in ``center``.
        batch: int64, the segment of each row of ``x``, for ragged groups.
        batch_size: number of segments.
        process_group: the values of a group are spread over the processes of this group, which all make the same call;
            ``"world"`` for torch's default group. One may have no values. Not with ``batch``. Differentiable once.
        interior: the old name of ``phi_strictly_inside``, until 0.3.

    Shape:
        - x: any; output: the same; statistics: the shape of ``x`` with the reduced dimensions of size 1, or
          ``(batch_size, *)`` with ``batch``.

    Examples:
        >>> import torch
        >>> from geonorm.functional import aug_norm
        >>> x = torch.randn(8, 3, 5)
        >>> y, statistics = aug_norm(x, (0, 2), 2.0)
        >>> torch.allclose(y, torch.nn.functional.batch_norm(x, None, None, training=True), atol=1e-5)
        True
        >>> statistics.center.shape
        torch.Size([1, 3, 1])
    """
    rule = make_rule(
        spread,
        spread_phi,
        spread_floor,
        grad_floor,
        eps,
        sweeps,
        renamed_interior(phi_strictly_inside, interior),
    )
    groups = dim if process_group is None else joint_groups(x, dim, process_group, batch)
    output, statistics = aug_norm_impl(x, groups, phi, alpha, weight, bias, rule, element_weight, batch, batch_size)
    assert statistics is not None
    return AugNorm(output, statistics)


def joint_groups(x: Tensor, dim: int | Sequence[int] | None, process_group: Group, batch: Tensor | None = None) -> Axes:
    """Groups over the processes of a process group; this process may have no values."""
    if batch is not None:
        raise ValueError("expected batch or process_group, not both: segments do not extend over processes")
    check_floating(x)
    if not x.dim():
        raise ValueError("expected x with a dimension to reduce over process_group (got a scalar); try x.reshape(1)")
    return grouping(reduced_dims(x, dim, empty_ok=True), group_name(process_group))


def aug_norm_impl(
    x: Tensor,
    dim: int | Sequence[int] | Axes | None,
    phi: float | Tensor,
    alpha: float | Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    rule: Rule,
    element_weight: Tensor | None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
    measured: bool = True,
    empty_ok: bool = False,
) -> tuple[Tensor, NormStatistics | None]:
    """``aug_norm`` with its options as a rule. If φ is learned, ``phi`` is what the rule's ``learned`` makes it from.

    ``dim`` may be the groups themselves, which may extend over processes. Returns statistics if ``measured``.
    ``empty_ok``: groups whose weights are all 0 come out as 0.
    """
    check_floating(x)
    if batch is not None and dim is not None:
        raise ValueError("expected dim or batch, not both: batch reduces the rows of each segment")
    power = exponent(phi)
    check_sweeps(rule.sweeps)
    if batch is None:
        axes = dim if isinstance(dim, Axes) else Axes(reduced_dims(x, dim))
        groups: Axes | Segments = axes
        if isinstance(power, Tensor):
            power = per_group(power, x.shape, axes.dims, "phi")
        full_weight = None if element_weight is None else weights(element_weight, floating(x))
    else:
        number = segments(x, batch, batch_size)
        groups = Segments(batch, number)
        if isinstance(power, Tensor):
            power = of_segment(power, (number, *x.shape[1:]), "phi")
        full_weight = None if element_weight is None else weights(by_row(element_weight, x), floating(x))
    check_values(full_weight, groups, empty_ok)
    for name, value in (("alpha", alpha), ("weight", weight), ("bias", bias)):
        if isinstance(value, Tensor):
            broadcastable(value, x, name)
    alpha = alpha if isinstance(alpha, Tensor) else float(alpha)
    if not x.dim():
        inputs = Inputs(x.reshape(1), power, alpha, None, weight, bias, full_weight)
        output, statistics = normalize(inputs, Axes((0,)), rule, measured=measured)
        return output.reshape(()), statistics
    inputs = Inputs(x, power, alpha, None, weight, bias, full_weight)
    return normalize(inputs, groups, rule, measured=measured)


def normalize_in_layer(
    x: Tensor,
    groups: Axes,
    rule: Rule,
    phi: float | Tensor,
    alpha: float | Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    element_weight: Tensor | None,
    running: Running | None = None,
    measured: bool = False,
    guard_counts: Tensor | None = None,
) -> tuple[Tensor, NormStatistics | None]:
    """The functional call of the layers, which have checked their options and parameters before.

    Updates the ``running`` buffers and the ``guard_counts``, and returns statistics if ``measured``. If φ is learned,
    ``phi`` is what the rule's ``learned`` makes it from. Groups whose weights are all 0 come out as 0.
    """
    check_floating(x)
    full_weight = None
    if element_weight is not None:
        full_weight = weights(element_weight, floating(x))
        check_values(full_weight, groups, empty_ok=True)
    inputs = Inputs(x, phi, alpha, shift, weight, bias, full_weight)
    return normalize(inputs, groups, rule, running, measured, guard_counts)


def affine_norm(
    x: Tensor,
    center: Tensor,
    variance: Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize with given statistics, as every layer of this library does in evaluation.

        y = weight · (x − center) / √(variance + eps) + bias

    One multiplication and one addition per element, in x's dtype for float32 and float64, in float32 for half.

    Args:
        x: values.
        center: subtracted; broadcasts to ``x``.
        variance: square of the spread; broadcasts to ``x``.
        weight: γ, broadcasts to ``x``.
        bias: β, broadcasts to ``x``.
        eps: added to the variance.

    Shape:
        - x: any; output: the same.

    Examples:
        >>> import torch
        >>> from geonorm.functional import affine_norm
        >>> affine_norm(torch.tensor([1.0, 3.0]), torch.tensor(1.0), torch.tensor(4.0), eps=0.0)
        tensor([0., 1.])
    """
    values = floating(x)
    scale, offset = affine_of(center, variance, weight, bias, eps)
    return torch.addcmul(offset.to(values.dtype), values, scale.to(values.dtype)).to(x.dtype)


def affine_of(
    center: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The normalization with given statistics as one multiplication and one addition: (scale, offset)."""
    scale = (variance + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    offset = -center * scale
    return scale, offset if bias is None else offset + bias
