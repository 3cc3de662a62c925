"""How the groups of a tensor lie in memory, in the terms of the native kernels.

In memory order, with sizes of 1 left out and neighbours of the same kind merged, kept (K) and reduced (R) dimensions
alternate. The kernels know these patterns:

    rows   K R, R, K (LayerNorm, GroupNorm, InstanceNorm), R K R (BatchNorm of NC*)
    lanes  R K (2-D batches, channels_last), K R K (InstanceNorm in channels_last)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

ROWS, LANES = 0, 1
PER_GROUP, PER_RUN, PER_VALUE = 0, 1, 2


class Arrangement(NamedTuple):
    """Sizes and strides (in elements) for the kernels, and the shapes that parameters and φ must be expanded to.

    The fields up to ``period`` are those of csrc/job.h, which explains them; the first nine go there in this order.
    """

    layout: int
    groups: int
    runs: int
    length: int
    run_stride: int
    group_stride: int
    segments: int
    features: int
    rows: int
    parameters: int
    period: int
    parameter_shape: tuple[int, ...]
    parameter_count: int
    phi_count: int
    phi_shape: tuple[int, ...]
    statistics_shape: tuple[int, ...]
    members: int


def _in_memory_order(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Dimensions of more than one value from the outermost to the innermost; None if there are gaps or overlaps."""
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -strides[d])
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= shape[d]
    return order


def _present(shapes: Sequence[tuple[int, ...] | None], rank: int) -> set[int]:
    """Dimensions along which at least one of some shapes that broadcast to x has more than one value."""
    found: set[int] = set()
    for shape in shapes:
        if shape is not None:
            found |= {rank - len(shape) + i for i, size in enumerate(shape) if size != 1}
    return found


def _is_suffix(part: list[int], whole: list[int]) -> bool:
    return part == whole[len(whole) - len(part) :]


def arrange(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dims: tuple[int, ...],
    parameters: tuple[tuple[int, ...] | None, ...],
    phi: tuple[int, ...] | None,
) -> Arrangement | None:
    """The arrangement of a dense tensor whose groups are slices; None if the kernels do not support it."""
    order = _in_memory_order(shape, strides)
    if order is None or 0 in shape:
        return None
    kept, reduced = [d for d in order if d not in dims], [d for d in order if d in dims]
    if kept != sorted(kept):  # statistics are written in memory order
        return None
    pattern: list[tuple[bool, list[int]]] = []
    for d in order:
        if pattern and pattern[-1][0] == (d in dims):
            pattern[-1][1].append(d)
        else:
            pattern.append((d in dims, [d]))
    kinds = "".join("R" if is_reduced else "K" for is_reduced, _ in pattern)
    sizes = [math.prod(shape[d] for d in block) for _, block in pattern]

    present = _present(parameters, len(shape))
    inside = [d for d in reduced if d in present]
    outside = [d for d in kept if d in present]
    if not _is_suffix(outside, kept):
        outside, present = kept, present | set(kept)
    mode, runs, length = PER_GROUP, 1, math.prod(shape[d] for d in reduced)
    if inside:
        if kinds not in ("KR", "R") or reduced != sorted(reduced):
            return None
        if inside == reduced[: len(inside)] and inside != reduced:
            mode, runs = PER_RUN, math.prod(shape[d] for d in inside)
            length //= runs
        else:
            mode, present = PER_VALUE, present | set(reduced)
        used = [d for d in order if d in present]
        if used != sorted(used):  # parameters are stored in dimension order, the kernels read in memory order
            return None
        if mode == PER_VALUE and outside:  # one parameter per value of every group: torch needs less memory
            return None
    common = tuple(size if d in present else 1 for d, size in enumerate(shape))

    exponents = _present([phi], len(shape))
    if not exponents <= set(kept):
        return None
    if not _is_suffix([d for d in kept if d in exponents], kept):
        exponents = set(kept)
    phi_shape = tuple(size if d in exponents else 1 for d, size in enumerate(shape))

    groups, members = math.prod(shape[d] for d in kept), math.prod(shape[d] for d in reduced)
    layout, run_stride, group_stride, segments, features, rows = ROWS, length, members, 1, 1, 1
    if kinds == "RKR":
        runs, length, run_stride, group_stride = sizes[0], sizes[2], sizes[1] * sizes[2], sizes[2]
    elif kinds in ("RK", "KRK"):
        layout, features = LANES, sizes[-1]
        rows, segments = (sizes[0], 1) if kinds == "RK" else (sizes[1], sizes[0])
    elif kinds not in ("KR", "R", "K", ""):
        return None
    return Arrangement(
        layout,
        groups,
        runs,
        length,
        run_stride,
        group_stride,
        segments,
        features,
        rows,
        mode,
        math.prod(shape[d] for d in outside),
        common,
        math.prod(common),
        math.prod(phi_shape),
        phi_shape,
        tuple(1 if d in dims else size for d, size in enumerate(shape)),
        members,
    )


def arrange_segments(
    shape: tuple[int, ...],
    number: int,
    parameters: tuple[tuple[int, ...] | None, ...],
    phi: tuple[int, ...] | None,
) -> Arrangement | None:
    """The arrangement of contiguous rows that are sorted by segment."""
    if 0 in shape or not number:
        return None
    features = math.prod(shape[1:])
    present = _present(parameters, len(shape))
    if 0 in present and shape[0] != 1:
        return None
    common = (1, *shape[1:]) if present else (1,) * len(shape)
    statistics = (number, *shape[1:])
    exponents = _present([phi], len(shape))
    phi_shape = statistics if 0 in exponents and number != 1 else (1, *shape[1:]) if exponents else (1,) * len(shape)
    return Arrangement(
        layout=LANES,
        groups=number * features,
        runs=1,
        length=1,
        run_stride=1,
        group_stride=1,
        segments=number,
        features=features,
        rows=0,
        parameters=PER_GROUP,
        period=math.prod(common),
        parameter_shape=common,
        parameter_count=math.prod(common),
        phi_count=math.prod(phi_shape),
        phi_shape=phi_shape,
        statistics_shape=statistics,
        members=0,
    )
