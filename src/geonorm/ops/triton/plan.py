"""Which normalizations have kernels, and how they run.

A case without a kernel is refused, and runs on torch: element weights, float64, φ outside of [1.01, 4] (so also the
median and the midrange), a φ that is a tensor but not a ``LearnedPhi``, an α or b that varies inside the groups (as in
POP-Norm of rows and groups: z then needs moments of its own, and b a sum per channel of every group), spreads other
than rms, mean_abs, max_abs and robust, a fixed number of sweeps, POP-Norm that scales first, and a guard around another
center than the mean or with another spread than rms. It never depends on the data: segments may come in any order.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..grouping import Grouping, Segments
from ..problem import Inputs, Rule, per_group_shape
from ..torch import rows
from ..torch.gaussian import robust_factor
from ..torch.spread import mean_abs_factor
from .layout import Layout, is_dense, layout, segments_layout

NO_SPREAD, RMS, MEAN_ABS, MAX_ABS, ROBUST = range(5)  # as in kernels/state.py
_SPREADS = {2.0: RMS, 1.0: MEAN_ABS, math.inf: MAX_ABS, None: ROBUST}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LEAST_PHI, _MOST_PHI, _MOST_SPREAD_PHI = 1.01, 4.0, 3.0


class Plan(NamedTuple):
    """Everything about a supported call except the tensors."""

    layout: Layout
    strides: tuple[int, ...]  # of x, possibly copied, when the kernels read it
    power: bool  # a search is needed: φ is not 2
    root: bool  # φ is 1.5
    root_2: bool  # and so is that of the robust spread
    kind: int  # of spread
    factor: float  # of the robust spread
    floor: float  # of the robust spread, times mean|z|
    rows: Layout | None = None  # of the samples' rows in a guarded batch
    positions: int = 1  # values of a sample in one channel
    segments: int = 0  # their number; 0: the groups are over axes


def plan(of: Inputs, groups: Grouping, rule: Rule) -> Plan | None:
    """How to run a normalization on the kernels; None if there are none for it."""
    x = of.x
    if of.weight is not None or groups.joint or x.is_neg() or not x.numel():
        return None
    number, dims = (groups.number, ()) if isinstance(groups, Segments) else (0, groups.dims)
    if isinstance(groups, Segments) and (len(groups.index) != len(x) or not number):
        return None
    if rule.guard is not None and not rows.supports(of, groups, rule):
        return None
    phi = of.phi if isinstance(of.phi, float | int) else None
    shapes = tuple([value.shape if isinstance(value, Tensor) else None for value in of[1:6]])
    return _plan(x.shape, x.stride(), x.dtype, dims, number, shapes, phi, rule)


@lru_cache(maxsize=1024)
def _plan(
    shape: torch.Size,
    strides: tuple[int, ...],
    dtype: torch.dtype,
    dims: tuple[int, ...],
    segments: int,
    shapes: tuple[torch.Size | None, ...],
    phi: float | None,
    rule: Rule,
) -> Plan | None:
    """The part that shapes, strides and dtypes decide. ``shapes``: of φ, α, b, γ and β. ``phi``: None for a tensor."""
    if dtype not in _DTYPES or rule.sweeps is not None or rule.scale_first or rule.power not in _SPREADS:
        return None
    if rule.power is None and not _LEAST_PHI <= rule.spread_phi <= _MOST_SPREAD_PHI:
        return None
    if phi is None and (rule.learned is None or not _LEAST_PHI <= rule.learned[0] <= rule.learned[1] <= _MOST_PHI):
        return None
    if phi is not None and not _LEAST_PHI <= phi <= _MOST_PHI:
        return None
    found = _places(shape, strides, dims, segments, shapes, rule.guard is not None)
    if found is None:
        return None
    whole, of_rows, strides = found
    return Plan(
        whole,
        strides,
        power=phi != 2 and rule.centered,
        root=phi == 1.5,
        root_2=rule.spread_phi == 1.5,
        kind=_SPREADS[rule.power] if rule.scaled else NO_SPREAD,
        factor=robust_factor(rule.spread_phi) if rule.power is None else 1.0,
        floor=rule.spread_floor * mean_abs_factor(),
        rows=of_rows,
        positions=math.prod(shape[2:]),
        segments=segments,
    )


def _places(
    shape: torch.Size,
    strides: tuple[int, ...],
    dims: tuple[int, ...],
    segments: int,
    shapes: tuple[torch.Size | None, ...],
    guarded: bool,
) -> tuple[Layout, Layout | None, tuple[int, ...]] | None:
    """The layouts of the groups and of the rows of a guarded batch, and the strides that x is read with."""
    per_group, contiguous = shapes[:3], _contiguous_strides(shape)
    if segments:
        listed = segments_layout(shape, segments, shapes[3:], per_group)
        return None if listed is None else (listed, None, contiguous)
    if shapes[0] is not None:
        per_group = (torch.Size(per_group_shape(shapes[0], shape, dims, "phi")), *shapes[1:3])
    for order in (strides, contiguous):  # the second one is a copy
        if is_dense(shape, order):
            found = _layouts(shape, order, dims, shapes[3:], per_group, guarded)
            if found is not None:
                return *found, order
    return None


def _layouts(
    shape: torch.Size,
    strides: tuple[int, ...],
    dims: tuple[int, ...],
    affine: tuple[torch.Size | None, ...],
    per_group: tuple[torch.Size | None, ...],
    guarded: bool,
) -> tuple[Layout, Layout | None] | None:
    """The layouts of the groups and, of a guarded batch, of the samples' rows."""
    whole = layout(shape, strides, dims, affine, per_group)
    if whole is None:
        return None
    if not guarded:
        return whole, None
    in_order = all(
        strides[0] >= stride for stride, size in zip(strides[2:], shape[2:], strict=True) if shape[0] > 1 and size > 1
    )
    of_rows = layout(shape, strides, tuple(range(2, len(shape))))
    if of_rows is None or not in_order:  # member j must belong to sample j // positions
        return None
    return whole, of_rows


def _contiguous_strides(shape: torch.Size) -> tuple[int, ...]:
    return tuple([math.prod([max(1, n) for n in shape[d + 1 :]]) for d in range(len(shape))])
