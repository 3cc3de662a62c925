"""Which normalizations the kernels support, and how the tensors are laid out for them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..grouping import Axes, Grouping
from ..precision import computing_dtype
from ..problem import Inputs, Rule, per_group_shape
from ..torch.gaussian import robust_factor
from ..torch.spread import mean_abs_factor
from . import library
from .arrange import LANES, Arrangement, arrange, arrange_segments

_SPREADS = {2.0: library.RMS, 1.0: library.MEAN_ABS, math.inf: library.MAX_ABS, None: library.ROBUST}
_MOST_ROWS = 1 << 24  # of interleaved channels: kernels copy up to 32 channels at once, and two such copies take 4 GB
_LARGEST_SPREAD_PHI = 3.0  # above, equal deviations would lose their part of the gradient


class Plan(NamedTuple):
    """Everything about a supported call except the data."""

    arrangement: Arrangement
    encoded_spec: bytes  # from library.encode_spec
    strides: tuple[int, ...]  # of x, possibly copied, when the kernels read it
    dtype: torch.dtype  # that the kernels compute in
    guarded: bool
    offsets: Tensor | None = None


def plan(of: Inputs, groups: Grouping, rule: Rule) -> Plan | None:
    """How to run a normalization on the kernels; None if they do not support it."""
    x, phi, alpha, *_ = of
    if of.weight is not None or groups.joint or x.is_neg():
        return None
    shapes = tuple([value.shape if isinstance(value, Tensor) else None for value in of[1:6]])
    numbers = (phi if type(phi) is float else 0.0, alpha if type(alpha) is float else 0.0)
    if isinstance(groups, Axes):
        return _plan(x.shape, x.stride(), x.dtype, groups.dims, None, shapes, numbers, rule)
    if x.shape[0] != len(groups.index) or rule.learned is not None:
        return None
    found = _plan(x.shape, (), x.dtype, (), groups.number, shapes, numbers, rule)
    offsets = None if found is None else library.segment_offsets(groups.index, groups.number)
    return None if found is None or offsets is None else found._replace(offsets=offsets)


@lru_cache(maxsize=1024)
def _plan(
    shape: torch.Size,
    strides: tuple[int, ...],
    x_dtype: torch.dtype,
    dims: tuple[int, ...],
    segments: int | None,
    shapes: tuple[torch.Size | None, ...],
    numbers: tuple[float, float],
    rule: Rule,
) -> Plan | None:
    """The part of a plan that shapes, strides and dtypes decide. ``shapes``: of φ, α, shift, γ and β."""
    if x_dtype not in library.CODES or rule.sweeps is not None or rule.scale_first or rule.power not in _SPREADS:
        return None
    if rule.power is None and not 1.01 <= rule.spread_phi <= _LARGEST_SPREAD_PHI:
        return None
    phi = shapes[0]
    if phi is not None and segments is None:
        phi = torch.Size(per_group_shape(phi, shape, dims, "phi"))
    if segments is None:
        arrangement = arrange(shape, strides, dims, shapes[1:], phi)
    else:
        arrangement = arrange_segments(shape, segments, shapes[1:], phi)
    if arrangement is None and segments is None:  # try a contiguous copy
        strides = contiguous_strides(shape)
        arrangement = arrange(shape, strides, dims, shapes[1:], phi)
    if arrangement is None or (arrangement.layout == LANES and arrangement.rows > _MOST_ROWS):
        return None
    options = library.KernelOptions(
        rule.centered,
        _SPREADS[rule.power] if rule.scaled else library.NO_SPREAD,
        *((0, 0) if rule.guard is None else (shape[0], math.prod(shape[2:]))),
        *numbers,
        rule.eps,
        rule.spread_phi,
        robust_factor(rule.spread_phi) if rule.power is None else 1.0,
        rule.spread_floor * mean_abs_factor(),
        rule.grad_floor,
        rule.guard or 0.0,
        *(rule.learned or ()),
    )
    strides = strides if segments is None else contiguous_strides(shape)
    if rule.guard is not None and not _samples_are_apart(arrangement, shape, dims):
        return None
    encoded_spec = library.encode_spec(x_dtype, arrangement, options)
    return Plan(arrangement, encoded_spec, strides, computing_dtype(x_dtype), rule.guard is not None)


def _samples_are_apart(a: Arrangement, shape: torch.Size, dims: tuple[int, ...]) -> bool:
    """Whether the kernels can tell the samples of x, (N, C, *), apart: each is one run, or consecutive rows."""
    if dims != (0, *range(2, len(shape))):
        return False
    samples, positions = shape[0], math.prod(shape[2:])
    if a.layout == LANES:
        return a.segments == 1 and a.rows == samples * positions
    return a.runs == samples and a.run_stride == a.groups * a.length


def contiguous_strides(shape: torch.Size) -> tuple[int, ...]:
    """The strides of a contiguous tensor of that shape."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(1, shape[d + 1])
    return tuple(strides)
