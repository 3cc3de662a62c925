"""The center of every group as one operation: closed forms at φ = 1, 2 and ∞, the certified solver elsewhere.

``center`` works on two layouts: rows, ``x[groups, members]`` with statistics ``[groups, 1]``, and segments,
``x[members, features]`` with ``batch[members]`` and statistics ``[segments, features]``. Outside of a compiled
graph, and inside of one unless the number of sweeps is fixed, it runs as the registered operator
``geonorm::center``: opaque to the compiler, so that its loop may look at the data. With a fixed number of sweeps a
compiler sees plain tensor operations; a graph for ONNX always has one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import can_look, check_exponent, check_values, exports_to_onnx
from .grouping import Axes, Grouping, Segments, power_of_two, unit_weight
from .median import middle_values
from .solver import Solution, look, solve


class Center(NamedTuple):
    """Per group: the center in x's dtype, a bound on its error (float64), sweeps made, and the two values whose
    midpoint is the center: the middle ones at φ = 1, the extremes at φ = ∞, the center itself elsewhere."""

    center: Tensor
    bound: Tensor
    sweeps: Tensor
    lower: Tensor
    upper: Tensor


def center(
    x: Tensor,
    phi: float | Tensor,
    weight: Tensor | None,
    groups: Grouping,
    sweeps: int | None = None,
    interior: bool = False,
) -> Center:
    """The center of every row, or of every segment.

    Args:
        x: float32 or float64, ``[groups, members]`` or ``[members, features]``.
        phi: a number or a tensor that broadcasts to the statistics.
        weight: non-negative, of x's shape.
        groups: ``Axes((1,))`` for rows, in this process or over several, or segments.
        sweeps: a fixed number of sweeps in place of the adaptive stop.
        interior: φ is known to lie inside (1, ∞); spares a traced graph the median that φ = 1 would need.
    """
    if sweeps is None and exports_to_onnx():
        sweeps = 8 if not isinstance(phi, Tensor) and phi >= 1.5 else 24  # ONNX knows no operator of ours
    if sweeps is not None and torch.compiler.is_compiling():
        return _find(x, phi, weight, groups, sweeps, interior)
    if groups.joint:
        return _find_together(x, phi, weight, groups, sweeps, interior)
    batch, batch_size = (groups.index, groups.number) if isinstance(groups, Segments) else (None, 0)
    power = phi if isinstance(phi, Tensor) else torch.tensor(phi, dtype=torch.float64, device=x.device)
    return Center(*torch.ops.geonorm.center(x, power.detach(), weight, batch, batch_size, sweeps))


def _find_together(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None, interior: bool
) -> Center:
    """Over several processes. Each step is taken by all of them, so nothing of it can hide inside an operator."""
    if torch.compiler.is_compiling() and (isinstance(phi, Tensor) or phi not in (1, 2, math.inf)):
        raise RuntimeError(
            "expected a fixed number of sweeps to compile a center over several processes (got sweeps=None): the "
            "adaptive stop looks at the data; construct the layer with sweeps=12, or compile without fullgraph"
        )
    if isinstance(phi, Tensor) and can_look(phi):
        check_exponent(phi)
    return _find(x, phi, weight, groups, sweeps, interior)


def _groups(batch: Tensor | None, batch_size: int) -> Grouping:
    return Axes((1,)) if batch is None else Segments(batch, batch_size)


torch.library.define(
    "geonorm::center",
    "(Tensor x, Tensor phi, Tensor? weight, Tensor? batch, SymInt batch_size, int? sweeps)"
    " -> (Tensor center, Tensor bound, Tensor sweeps, Tensor lower, Tensor upper)",
)


@torch.library.impl("geonorm::center", ("cpu", "cuda", "mps", "xpu"))  # not meta: that is the fake's
def _center(
    x: Tensor, phi: Tensor, weight: Tensor | None, batch: Tensor | None, batch_size: int, sweeps: int | None
) -> tuple[Tensor, ...]:
    groups = _groups(batch, batch_size)
    check_exponent(phi)
    check_values(weight, groups, empty_ok=True)
    power = float(phi) if phi.numel() == 1 else phi
    return tuple(_find(x, power, weight, groups, sweeps, interior=False))


@torch.library.register_fake("geonorm::center")  # type: ignore[untyped-decorator]
def _center_fake(
    x: Tensor, phi: Tensor, weight: Tensor | None, batch: Tensor | None, batch_size: int, sweeps: int | None
) -> tuple[Tensor, ...]:
    shape = (x.shape[0], 1) if batch is None else (batch_size, x.shape[1])
    wide, whole = x.new_empty(shape, dtype=torch.float64), x.new_empty(shape, dtype=torch.int64)
    return x.new_empty(shape), wide, whole, x.new_empty(shape), x.new_empty(shape)


@torch.library.register_vmap("geonorm::center")  # type: ignore[untyped-decorator]
def _center_vmap(
    info: object,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    phi: Tensor,
    weight: Tensor | None,
    batch: Tensor | None,
    batch_size: int,
    sweeps: int | None,
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Groups are independent: the mapped dimension becomes more rows, or more features of the same segments."""
    if in_dims[3] is not None:
        raise RuntimeError(
            "expected the same `batch` vector for all entries of a vmap (got one that is mapped over); "
            "offset the segment numbers and call segment_center once on the concatenated rows instead"
        )
    size: int = info.batch_size  # type: ignore[attr-defined]
    into = 0 if batch is None else 1  # where the mapped dimension is merged

    def merge(value: Tensor | None, dim: int | None) -> Tensor | None:
        if value is None or (dim is None and value.dim() == 0):
            return value
        if dim is None:
            value, dim = value.unsqueeze(0).expand(size, *value.shape), 0
        value = value.movedim(dim, 0)
        while value.dim() < 3:
            value = value.unsqueeze(1)
        if value.shape[1 + into] == 1:  # φ that broadcasts along the merged dimension
            value = value.expand(-1, x_size if into == 0 else -1, x_size if into == 1 else -1)
        return value.movedim(0, into).flatten(into, into + 1)

    x_shape = x.shape if in_dims[0] is None else x.movedim(in_dims[0], 0).shape[1:]
    x_size = x_shape[into]
    merged_x, merged_phi = merge(x, in_dims[0]), merge(phi, in_dims[1])
    out = torch.ops.geonorm.center(merged_x, merged_phi, merge(weight, in_dims[2]), batch, batch_size, sweeps)
    return tuple(value.unflatten(into, (size, x_size)) for value in out), (into,) * len(out)


def _find(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None, interior: bool
) -> Center:
    # May Python look at the data? A traced graph with the adaptive stop is inside of the operator here.
    decide = not torch.compiler.is_compiling() or (sweeps is None and not groups.joint)
    if weight is not None:
        present = weight > 0
        x = torch.where(present, x, groups.expand(groups.min(torch.where(present, x, math.inf))))
        weight, _ = unit_weight(weight, groups, torch.float64)
    exact_weight, weight = weight, None if weight is None else weight.to(x.dtype)
    given, (low, high) = x, groups.extremes(x)
    rescale = _rescale(low, high)
    if not decide or bool((rescale != 1).any()):
        x = x * groups.expand(rescale)
    seen = look(x, weight, groups, (low * rescale, high * rescale))

    nan = torch.full_like(seen.mean, math.nan)
    result = Solution(nan, nan, torch.zeros_like(nan, dtype=torch.int64))

    def at(value: float) -> Tensor | None:
        """Where φ is this value: None for nowhere."""
        if not isinstance(phi, Tensor):
            return torch.ones_like(nan, dtype=torch.bool) if phi == value else None
        if interior and value != 2:
            return None
        chosen = (phi == value).expand_as(nan)
        return chosen if not decide or bool(chosen.any()) else None

    def weighted(values: Tensor) -> Tensor:
        return values if weight is None else values * weight

    if isinstance(phi, Tensor) or phi not in (1, 2, math.inf):
        result = solve(x, phi, weight, groups, seen, sweeps)
    if (where := at(2)) is not None:
        deviation = groups.sum(weighted((x - groups.expand(seen.mean.to(x.dtype))).abs())).double() / seen.mass
        rounding = 32 * torch.finfo(x.dtype).eps * deviation
        result = Solution(
            torch.where(where, seen.mean, result.center),
            torch.where(where, rounding, result.bound),
            torch.where(where, 0, result.sweeps),
        )
    unscale = 1 / rescale.double()
    result = Solution(result.center * unscale, result.bound * unscale, result.sweeps)
    lower = upper = result.center
    if (where := at(1)) is not None:
        middle = middle_values(given, exact_weight, groups)
        result, lower, upper = _midpoint(where, *middle, result, lower, upper)
    if (where := at(math.inf)) is not None:
        result, lower, upper = _midpoint(where, low, high, result, lower, upper)
    return _finish(x, result, lower, upper, seen.mass == 0)


def _midpoint(
    where: Tensor, low: Tensor, high: Tensor, result: Solution, lower: Tensor, upper: Tensor
) -> tuple[Solution, Tensor, Tensor]:
    """The exact center of groups whose center is the midpoint of two of their values."""
    low, high = low.double(), high.double()
    center = torch.where(where, 0.5 * low + 0.5 * high, result.center)
    exact = Solution(center, torch.where(where, 0.0, result.bound), torch.where(where, 0, result.sweeps))
    return exact, torch.where(where, low, lower), torch.where(where, high, upper)


def _rescale(low: Tensor, high: Tensor) -> Tensor:
    """A power of two per group that brings magnitudes no float arithmetic is safe at back to about 1; mostly 1."""
    largest = torch.maximum(high, -low).double()
    limit = {torch.float32: 2.0**60, torch.float64: 2.0**500}[low.dtype]
    unsafe = (largest > limit) | (largest < 1 / limit)
    factor = power_of_two(largest).clamp(max=torch.finfo(low.dtype).max / 2)
    return torch.where(unsafe, factor, 1.0).to(low.dtype)


def _finish(x: Tensor, result: Solution, lower: Tensor, upper: Tensor, empty: Tensor) -> Center:
    """In the data's own dtype; the bound takes in that last rounding. Empty groups get 0."""
    eps, tiny = torch.finfo(x.dtype).eps, torch.finfo(x.dtype).tiny
    center, lower, upper = (torch.where(empty, 0.0, value) for value in (result.center, lower, upper))
    bound = torch.where(empty, 0.0, result.bound + eps * (center.abs() + tiny))
    sweeps = torch.where(empty, 0, result.sweeps)
    return Center(center.to(x.dtype), bound, sweeps, lower.to(x.dtype), upper.to(x.dtype))


def _no_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "geonorm::center has no gradient of its own; call geonorm.functional.center, which differentiates implicitly"
    )


torch.library.register_autograd("geonorm::center", _no_gradient)
