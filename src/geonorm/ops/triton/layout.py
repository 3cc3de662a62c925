"""Where the values of the groups lie in memory, as the kernels address them.

With sizes of 1 left out, neighbouring dimensions of the same kind, kept or reduced, are merged where their strides
allow. At most two blocks of each kind may remain:

    group g at (g // GI)·g_outer + (g % GI)·g_inner        member j at (j // JI)·j_outer + (j % JI)·j_inner

A γ or β may vary inside of the groups, as in LayerNorm and GroupNorm: entry (g % PG)·JM + (j // JD) % JM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Layout(NamedTuple):
    """Sizes and strides (in elements), named as the parameters of the kernels.

    Attributes:
        m, G: values per group, groups.
        PG, JD, JM: which entry of γ and β belongs to a value; JM is 1 if it is the same for a whole group.
        parameter_shape: what γ and β are expanded to; ``PG·JM`` entries.
        counts: entries of φ, α and b, which are the same for a whole group: entry g modulo this.
        count_shapes: what φ, α and b are expanded to.
    """

    m: int
    G: int
    g_outer: int
    g_inner: int
    j_outer: int
    j_inner: int
    GI: int
    JI: int
    BIG: bool
    PG: int
    JD: int
    JM: int
    parameter_shape: tuple[int, ...]
    counts: tuple[int, int, int]
    count_shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    def where(self) -> dict[str, int | bool]:
        """The place of the groups, for a kernel."""
        return {
            name: getattr(self, name) for name in ("m", "G", "g_outer", "g_inner", "j_outer", "j_inner", "GI", "JI")
        }

    def affine(self) -> dict[str, int]:
        """The place of γ and β, for a kernel."""
        return {"PG": self.PG, "JD": self.JD, "JM": self.JM}


class _Block(NamedTuple):
    """Neighbouring dimensions that are addressed by one number."""

    size: int
    stride: int  # of the last one
    dims: tuple[int, ...]


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the values fill their memory, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def layout(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dims: tuple[int, ...],
    affine: tuple[tuple[int, ...] | None, ...] = (),
    per_group: tuple[tuple[int, ...] | None, ...] = (None, None, None),
) -> Layout | None:
    """The layout of a dense tensor; None if the kernels cannot address it.

    ``affine``: shapes of γ and β. ``per_group``: shapes of φ, α and b. They broadcast to ``shape``.
    """
    kept = _blocks(shape, strides, [d for d in range(len(shape)) if d not in dims])
    reduced = _blocks(shape, strides, list(dims))
    if len(kept) > 2 or len(reduced) > 2:
        return None
    in_order = list(reduced)
    reduced.sort(key=lambda block: -block.stride)  # neighbours in memory are neighbours in a tile
    g_outer, g_inner, inner_groups, groups = _address(kept)
    j_outer, j_inner, inner_members, members = _address(reduced)
    counts, count_shapes = [], []
    for value in per_group:
        found = _entries(shape, value, dims)
        if found is None:
            return None
        counts.append(math.prod(found))
        count_shapes.append(found)
    entry = _entry_of_affine(shape, affine, dims, reduced, in_order)
    if entry is None:
        return None
    periods, step, inside, parameter_shape = entry
    return Layout(
        members, groups, g_outer, g_inner, j_outer, j_inner, inner_groups, inner_members,
        math.prod(shape) >= 2**31, periods, step, inside, parameter_shape,
        (counts[0], counts[1], counts[2]), (count_shapes[0], count_shapes[1], count_shapes[2]),
    )  # fmt: skip


def segments_layout(
    shape: tuple[int, ...],
    number: int,
    affine: tuple[tuple[int, ...] | None, ...],
    per_group: tuple[tuple[int, ...] | None, ...],
) -> Layout | None:
    """The layout of contiguous rows that belong to segments; None if a parameter varies from row to row.

    Group g is feature g % F of segment g // F. Members are all rows: which of them belong to a group is in the index.
    φ broadcasts to the statistics, the others to x.
    """
    features, whole = math.prod(shape[1:]), (1, *shape[1:])
    if any(0 in _varies_along(shape, value) for value in (*affine, *per_group[1:])):
        return None
    count_shapes = []
    for value in per_group:
        varies = _varies_along(shape, value)
        per_segment = (number, *shape[1:])
        count_shapes.append(per_segment if 0 in varies else whole if varies else (1,) * len(shape))
    counts = [math.prod(each) for each in count_shapes]
    parameter_shape = whole if any(_varies_along(shape, value) for value in affine) else (1,) * len(shape)
    return Layout(
        shape[0], number * features, 1, 0, features, 0, 1, 1, max(shape[0], number) * features >= 2**31,
        math.prod(parameter_shape), 1, 1, parameter_shape,
        (counts[0], counts[1], counts[2]), (count_shapes[0], count_shapes[1], count_shapes[2]),
    )  # fmt: skip


def _blocks(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> list[_Block]:
    blocks: list[_Block] = []
    for d in sorted(dims):
        if shape[d] == 1:
            continue
        if blocks and blocks[-1].stride == shape[d] * strides[d]:
            last = blocks.pop()
            blocks.append(_Block(last.size * shape[d], strides[d], (*last.dims, d)))
        else:
            blocks.append(_Block(shape[d], strides[d], (d,)))
    return blocks


def _address(blocks: list[_Block]) -> tuple[int, int, int, int]:
    """Outer stride, inner stride, inner size and number of at most two blocks, outer first."""
    if not blocks:
        return 0, 0, 1, 1
    inner = blocks[-1]
    outer = blocks[0] if len(blocks) == 2 else _Block(1, 0, ())
    return outer.stride, inner.stride, inner.size, outer.size * inner.size


def _varies_along(shape: Sequence[int], value: tuple[int, ...] | None) -> list[int]:
    """The dimensions of x along which a value that broadcasts to it has more than one entry."""
    if value is None:
        return []
    first = len(shape) - len(value)
    return [first + i for i, size in enumerate(value) if size != 1]


def _entries(shape: Sequence[int], value: tuple[int, ...] | None, dims: Sequence[int]) -> tuple[int, ...] | None:
    """What a value per group is expanded to, so that group g has entry g modulo their number; None if it varies
    inside of the groups."""
    varies = _varies_along(shape, value)
    if any(d in dims for d in varies):
        return None
    first = min(varies, default=len(shape))
    return tuple(n if d >= first and d not in dims else 1 for d, n in enumerate(shape))


def _entry_of_affine(
    shape: Sequence[int],
    affine: tuple[tuple[int, ...] | None, ...],
    dims: Sequence[int],
    reduced: list[_Block],
    in_order: list[_Block],
) -> tuple[int, int, int, tuple[int, ...]] | None:
    """PG, JD, JM and the shape that γ and β are expanded to; None if no such numbers describe them."""
    varies = sorted({d for value in affine for d in _varies_along(shape, value)})
    inside = [d for d in varies if d in dims]
    outside = [d for d in varies if d not in dims]
    kept = [d for d in range(len(shape)) if d not in dims and shape[d] != 1]
    outside = [d for d in kept if d >= min(outside)] if outside else []
    common = tuple(n if d in inside or d in outside else 1 for d, n in enumerate(shape))
    periods = math.prod([shape[d] for d in outside])
    if not inside:
        return periods, 1, 1, common
    if outside and max(outside) > min(inside):
        return None  # entries are stored in the order of dimensions
    block = next((block for block in in_order if inside[0] in block.dims), None)
    if block is None:
        return None
    at = block.dims.index(inside[0])
    if list(block.dims[at : at + len(inside)]) != inside:
        return None
    after = math.prod([shape[d] for d in block.dims[at + len(inside) :]])
    within = reduced[-1].size if block is not reduced[-1] else 1
    return periods, after * within, math.prod([shape[d] for d in inside]), common
