"""Center and spread of ragged groups: row i of x belongs to segment ``batch[i]``, as in a batch of graphs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..ops import Segments, check_values
from ._arguments import about_point, check_floor, exponent, floating, renamed_weight, segments, weights
from ._center import check_sweeps
from ._implicit import center_in_groups
from ._spread import spread_of


def segment_center(
    x: Tensor,
    phi: float | Tensor,
    batch: Tensor,
    batch_size: int | None = None,
    *,
    element_weight: Tensor | None = None,
    sweeps: int | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The L^φ center of every segment and feature; see ``center``.

    Rows may come in any order; results repeat bit for bit on CPU. A segment without rows, or whose weights are all
    0, gives 0 and no gradient.

    Args:
        x: values, one row per member.
        phi: exponent in [1, ∞], a number or a tensor that broadcasts to the output.
        batch: int64, the segment of each row.
        batch_size: number of segments; the largest entry of ``batch`` plus one by default. Needed under
            ``torch.compile``.
        element_weight: non-negative weights or a mask that broadcasts to ``x``.
        sweeps: as in ``center``.
        weight: the old name of ``element_weight``, until 0.3.

    Shape:
        - x: ``(rows, *)``; batch: ``(rows,)``; output: ``(batch_size, *)``.

    Examples:

        >>> import torch
        >>> from geonorm.functional import segment_center
        >>> x = torch.tensor([1.0, 5.0, 2.0, 9.0])
        >>> segment_center(x, 1.0, torch.tensor([0, 2, 0, 2]))
        tensor([1.5000, 0.0000, 7.0000])
    """
    values = floating(x)
    number = segments(values, batch, batch_size)
    shape = (number, *values.shape[1:])
    power = exponent(phi)
    if isinstance(power, Tensor):
        power = of_segment(power, shape, "phi")
    check_sweeps(sweeps)
    full_weight = weights(by_row(renamed_weight(element_weight, weight), values), values)
    groups = Segments(batch, number)
    check_values(full_weight, groups)
    found = center_in_groups(values, power, full_weight, groups, sweeps)
    return found.center.to(x.dtype)


def segment_spread(
    x: Tensor,
    kind: str | float,
    batch: Tensor,
    batch_size: int | None = None,
    *,
    about: float | Tensor | None = None,
    element_weight: Tensor | None = None,
    phi: float = 1.5,
    floor: float = 0.05,
    weight: Tensor | None = None,
) -> Tensor:
    """The size of the deviations of every segment and feature from a point; see ``spread``.

    Args:
        x: values, one row per member.
        kind: as in ``spread``.
        batch: int64, the segment of each row.
        batch_size: number of segments; the largest entry of ``batch`` plus one by default. Needed under
            ``torch.compile``.
        about: the point, a number or a tensor that broadcasts to the output.
        element_weight: non-negative weights or a mask that broadcasts to ``x``.
        phi: the exponent of the robust spread.
        floor: the floor of the robust spread.
        weight: the old name of ``element_weight``, until 0.3.

    Shape:
        - x: ``(rows, *)``; batch: ``(rows,)``; output: ``(batch_size, *)``.

    Examples:

        >>> import torch
        >>> from geonorm.functional import segment_spread
        >>> segment_spread(torch.tensor([3.0, 4.0, 4.0, -2.0]), "mean_abs", torch.tensor([0, 1, 0, 1]))
        tensor([3.5000, 3.0000])
    """
    values = floating(x)
    number = segments(values, batch, batch_size)
    shape = (number, *values.shape[1:])
    full_weight = weights(by_row(renamed_weight(element_weight, weight), values), values)
    groups = Segments(batch, number)
    check_floor(floor)
    check_values(full_weight, groups)
    point = about_point(about)
    if isinstance(point, Tensor):
        point = groups.expand(of_segment(point, shape, "about").to(values.dtype).expand(shape))
    values = values if about is None else values - point
    return spread_of(values, kind, full_weight, groups, phi, floor).to(x.dtype)


def of_segment(value: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """Raise unless a value broadcasts to the statistics of segments; returns the value."""
    try:
        value.expand(list(shape))
    except RuntimeError:
        raise ValueError(
            f"expected {name} to broadcast to (segments, features) = {tuple(shape)} (got shape {tuple(value.shape)}); "
            "give one value per feature, or one row per segment"
        ) from None
    return value


def by_row(weight: Tensor | None, x: Tensor) -> Tensor | None:
    """A weight per row, reshaped so that it applies to all features of its row."""
    if isinstance(weight, Tensor) and weight.dim() == 1 and x.dim() > 1 and len(weight) == len(x):
        return weight.reshape(-1, *[1] * (x.dim() - 1))
    return weight
