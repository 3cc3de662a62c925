"""The definition of a normalization, for every backend: its inputs, its rule, and the state saved for backward.

    z = x − α·c + b           c: the L^φ center of the group; α how much of it is removed; b a shift before the division
    y = γ·z/√(s² + ε) + β     s: a spread of z (or of x itself: ``scale_first``)

**Saved state.** One float64 row of ``len(COLUMNS)`` numbers per group, in the order of the kept dimensions, or of
segments and features. All backends write the same columns; ``BY`` says which one did, so that backward uses the same.
A guarded batch saves a second, flat tensor in the computing dtype: factors and distances of the samples, then joint
center and scale of the channels, then the radius.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .grouping import Axes, Grouping, Segments
from .precision import computing_dtype, wide
from .requested import requested

COLUMNS = (
    "CENTER",
    "SPREAD",
    "RHO",  # 1/√(s² + ε)
    "MEAN_Z",  # mean of z, where α and the shift are the same for the whole group
    "UNIT",  # largest |x − c|; 0 for a group of equal values
    "LEAST",  # |x − c|/unit below this counts as this (φ < 2)
    "LOWER",  # the two values whose midpoint is the center, φ = 1 and φ = ∞
    "UPPER",
    "MIDDLE",  # robust spread: center of |z|; the next four columns are UNIT to UPPER for |z|
    "UNIT_2",
    "LEAST_2",
    "LOWER_2",
    "UPPER_2",
    "FLOORED",  # robust spread: 1 where the floor, from the mean deviation, is the spread
    "MEAN",
    "VAR",
    "BOUND",  # the true center is this close to CENTER
    "SWEEPS",
    "MASS",  # number of values, or the sum of their weights
    "BY",  # which backend wrote the row
)
(
    CENTER, SPREAD, RHO, MEAN_Z, UNIT, LEAST, LOWER, UPPER, MIDDLE, UNIT_2,
    LEAST_2, LOWER_2, UPPER_2, FLOORED, MEAN, VAR, BOUND, SWEEPS, MASS, BY,
) = range(len(COLUMNS))  # fmt: skip
BY_TORCH, BY_CPU, BY_TRITON = 0.0, 1.0, 2.0


class Rule(NamedTuple):
    """The options that are not tensors."""

    power: float | None = 2.0  # of the spread; None: robust
    eps: float = 1e-5
    spread_phi: float = 1.5
    spread_floor: float = 0.05
    grad_floor: float = 0.0
    sweeps: int | None = None
    phi_strictly_inside: bool = False  # a tensor φ is known to lie in (1, ∞)
    centered: bool = True
    scaled: bool = True
    scale_first: bool = False
    guard: float | None = None  # k: far samples are pulled onto a ball of k median distances first
    learned: tuple[float, float, float] | None = None  # low, high, start of a LearnedPhi; Inputs.phi is its offset

    def to_numbers(self) -> list[float]:
        """The rule as numbers for an operator. 0 stands for None; it is not a valid value of those options."""
        none_or = [0.0 if value is None else float(value) for value in (self.power, self.sweeps, self.guard)]
        others = [self.eps, self.spread_phi, self.spread_floor, self.grad_floor]
        flags = [float(flag) for flag in (self.phi_strictly_inside, self.centered, self.scaled, self.scale_first)]
        return [*none_or, *others, *flags, *(self.learned or ())]

    @staticmethod
    def from_numbers(numbers: Sequence[float]) -> Rule:
        """The inverse of ``to_numbers``."""
        power, sweeps, guard, eps, spread_phi, spread_floor, grad_floor = numbers[:7]
        phi_strictly_inside, centered, scaled, scale_first = (bool(flag) for flag in numbers[7:11])
        return Rule(
            power or None,
            eps,
            spread_phi,
            spread_floor,
            grad_floor,
            int(sweeps) or None,
            phi_strictly_inside,
            centered,
            scaled,
            scale_first,
            guard or None,
            (numbers[11], numbers[12], numbers[13]) if len(numbers) > 11 else None,
        )


class Inputs(NamedTuple):
    """The tensors of one normalization; numbers stay numbers.

    ``alpha``, ``shift``, ``gamma`` and ``beta`` broadcast to x, ``phi`` over the kept dimensions; ``weight`` has x's
    shape.
    """

    x: Tensor
    phi: float | Tensor
    alpha: float | Tensor
    shift: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    weight: Tensor | None


class Saved(NamedTuple):
    """The state that forward saves for backward: a row per group, and the verdict on the samples of a guarded batch.

    ``plan`` is the backend's own ``Plan``, without tensors. It is lost on the way through an operator. ``backend`` is
    the one that wrote the rows, or was requested to: to ask rows on a device would be to wait for it.
    """

    groups: Tensor
    samples: Tensor | None = None
    plan: Any = None
    backend: str = ""


class Result(NamedTuple):
    """What a backend returns. ``running_updated``: it has updated the running statistics and counts it was given."""

    output: Tensor
    saved: Saved
    running_updated: bool = False


class Incoming(NamedTuple):
    """Gradients of the differentiable outputs."""

    output: Tensor
    center: Tensor | None = None
    spread: Tensor | None = None


class NormStatistics(NamedTuple):
    """What a normalization measured, per group, with the reduced axes kept.

    Attributes:
        center: the L^φ center.
        spread: the spread that the deviations were divided by, before ε.
        mean: the plain mean of x.
        var: the plain (biased) variance of x.
        mass: float64; number of values, or the sum of their weights.
    """

    center: Tensor
    spread: Tensor
    mean: Tensor
    var: Tensor
    mass: Tensor


def statistics_shape(shape: Sequence[int], groups: Grouping) -> list[int]:
    """The shape of a statistic of x."""
    if isinstance(groups, Segments):
        return [groups.number, *shape[1:]]
    return [1 if d in groups.dims else n for d, n in enumerate(shape)]


def to_rows(columns: dict[int, Tensor]) -> Tensor:
    """Saved rows from some of their columns; the others are 0."""
    flat = {column: wide(value.reshape(-1)) for column, value in columns.items()}
    nothing = torch.zeros_like(flat[CENTER])
    return torch.stack([flat.get(i, nothing) for i in range(len(COLUMNS))], 1)


def statistics_of(saved: Tensor, like: Tensor, groups: Grouping) -> NormStatistics:
    """The statistics of x from the saved rows."""
    shape = statistics_shape(like.shape, groups)
    dtype = computing_dtype(like.dtype)
    center, spread, mean, var = (saved[:, i].to(dtype, copy=True).reshape(shape) for i in (CENTER, SPREAD, MEAN, VAR))
    return NormStatistics(center, spread, mean, var, saved[:, MASS].clone().reshape(shape))


def verdict_size(x: Tensor) -> int:
    """How many numbers a guarded batch saves about its samples, for x of shape (N, C, *)."""
    size: int = 2 * (x.shape[0] + x.shape[1]) + 1
    return size


def factors_of(samples: Tensor, x: Tensor) -> Tensor:
    """The factor of each sample of a guarded batch."""
    return samples[: x.shape[0]]


def joint_center_of(samples: Tensor, x: Tensor) -> Tensor:
    """The joint center of a guarded batch, per channel."""
    first = 2 * x.shape[0]
    return samples[first : first + x.shape[1]]


def grouping_to_args(groups: Grouping) -> tuple[Tensor | None, list[int], int, str]:
    """A grouping as arguments of an operator.

    These are the segment of each row, the reduced dimensions, the number of segments and the name of a process group.
    """
    if isinstance(groups, Segments):
        return groups.index, [0], groups.number, ""
    return None, list(groups.dims), 0, groups.name


def grouping_from_args(index: Tensor | None, dims: Sequence[int], number: int, name: str = "") -> Grouping:
    """The inverse of ``grouping_to_args``."""
    if index is not None:
        return Segments(index, number)
    return Axes.over_processes(tuple(dims), name) if name else Axes(tuple(dims))


def to_arguments(of: Inputs, groups: Grouping, rule: Rule, backend: str | None = None) -> tuple[Any, ...]:
    """A normalization as arguments of the operators. The last one is a backend: by default the one requested now."""
    phi, alpha = ((v, 0.0) if isinstance(v, Tensor) else (None, v) for v in (of.phi, of.alpha))
    by = requested() if backend is None else backend
    return of.x, *phi, *alpha, *of[3:], *grouping_to_args(groups), rule.to_numbers(), by


def from_arguments(
    x: Tensor,
    phi: Tensor | None,
    phi_number: float,
    alpha: Tensor | None,
    alpha_number: float,
    shift: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    weight: Tensor | None,
    index: Tensor | None,
    dims: Sequence[int],
    segments: int,
    name: str,
    rule: Sequence[float],
    backend: str,
) -> tuple[Inputs, Grouping, Rule]:
    """The inverse of ``to_arguments``, without the backend."""
    exponent, removed = phi_number if phi is None else phi, alpha_number if alpha is None else alpha
    of = Inputs(x, exponent, removed, shift, gamma, beta, weight)
    return of, grouping_from_args(index, dims, segments, name), Rule.from_numbers(rule)


def number_of_groups(shape: Sequence[int], groups: Grouping) -> int:
    """The number of groups."""
    return math.prod(statistics_shape(shape, groups))


def per_group(value: Tensor, shape: Sequence[int], dims: tuple[int, ...], name: str) -> Tensor:
    """A statistic with the reduced axes kept, from one that broadcasts over the kept axes (or has all axes already)."""
    full = per_group_shape(value.shape, shape, dims, name)
    return value if value.dim() == len(full) else value.reshape(full)


def per_group_shape(given: Sequence[int], shape: Sequence[int], dims: tuple[int, ...], name: str) -> list[int]:
    """The shape of the result of ``per_group``, with all axes of x."""
    kept = [n for d, n in enumerate(shape) if d not in dims]
    full = [1 if d in dims else n for d, n in enumerate(shape)]
    if len(given) == len(shape) and broadcasts(given, full):
        return list(given)
    if len(given) <= len(kept) and broadcasts(given, kept):
        sizes = [1] * (len(kept) - len(given)) + list(given)
        return [1 if d in dims else sizes.pop(0) for d in range(len(shape))]
    if math.prod(given) == 1:
        return [1] * len(shape)
    raise ValueError(
        f"expected {name} to broadcast over the kept dimensions {tuple(kept)} (got shape {tuple(given)}); "
        f"x has shape {tuple(shape)} and is reduced over dim {dims}"
    )


def broadcasts(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a shape broadcasts to another."""
    if len(shape) > len(target):
        return False
    # By index: Dynamo loses symbolic sizes in reversed() and zip().
    return all(shape[-i] == 1 or shape[-i] == target[-i] for i in range(1, len(shape) + 1))
