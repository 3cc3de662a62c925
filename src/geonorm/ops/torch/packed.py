"""Normalization with 1 < φ < 2 and the rms spread on the CPU, in few passes over the data.

A block of groups is copied into rows once. Everything that forward or backward measures is then measured in a few
buffers that stay in the cache. Each pass is one torch call on a whole block, because memory traffic and fresh pages
cost more here than arithmetic.

**Search.** With w = |r|^(q−1), r = x − y and q = φ − 1, the sums Σ w, Σ rw and Σ |rw| at y give a Newton step on F and,
once rounding hides the sign of F, the certificate of ``search.py``. Most groups end there. The search in ``center.py``
finds the others.

**Backward** (formulas: ``norm.py``). With h = γg and z = r + d, where d is the same for a whole group,

    dx = ργ·g + e·z + f·w          e = (∂/∂s of the loss)/(ms),   f = dc/Σw
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .. import problem
from ..checks import can_read_values
from ..grouping import Axes, Grouping
from ..precision import computing_dtype
from ..problem import Incoming, Inputs, Result, Rule, Saved
from . import norm
from .center import center
from .search import Sums, advance, begin, rounding_of_sums, set_sweep_point, smallest_distance
from .spread import power_mean

_BLOCK = 1 << 18  # elements per block
_LONGEST = 1 << 22  # of one row: three buffers of this size are small beside the tensors
_SAMPLE = 4096  # values to start from, of rows at least four times as long
_MAX_SWEEPS = 5  # at most this many Newton steps; a group that needs more has a tie next to its center
_MODERATE = 1e14  # magnitudes up to this, and spreads from its inverse: squares and powers stay in range
_ROWS = Axes((1,))


def supports(of: Inputs, groups: Grouping, rule: Rule) -> bool:
    """Whether a normalization can be computed here."""
    x = of.x
    if type(of.phi) is not float or not 1 < of.phi < 2 or of.weight is not None or groups.joint:
        return False
    if not x.dim() or not x.numel():
        return False
    if rule.power != 2 or rule.scale_first or rule.guard is not None or rule.sweeps is not None:
        return False
    if not (rule.centered and rule.scaled) or not isinstance(groups, Axes):
        return False
    parameters = (of.alpha, of.shift, of.gamma, of.beta)
    if not all(norm.is_per_group(value, x, groups) for value in parameters):
        return False
    together = x.stride(-1) == 1 and x.dim() - 1 in groups.dims  # a block does not read the lines of another
    if not together and x.numel() > 4 * _BLOCK:
        return False
    return _Packing(x, groups).per_index <= _LONGEST and can_read_values(*[v for v in of if isinstance(v, Tensor)])


class _Packing:
    """How the groups of a tensor become rows, a block at a time."""

    def __init__(self, x: Tensor, groups: Axes) -> None:
        self.kept = [d for d in range(x.dim()) if d not in groups.dims]
        self.order = [*self.kept, *groups.dims]
        self.members = math.prod([x.shape[d] for d in groups.dims])
        self.first = x.shape[self.kept[0]] if self.kept else 1  # size of the dimension that blocks cut
        self.per_index = x.numel() // self.first
        self.step = max(1, _BLOCK // self.per_index)

    def view(self, value: Tensor) -> Tensor:
        """A tensor like x with the kept dimensions first."""
        found = value.permute(self.order)
        return found if self.kept else found.unsqueeze(0)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Slices of the first dimension of ``view``, and of the groups."""
        rows = self.per_index // self.members
        for start in range(0, self.first, self.step):
            stop = min(self.first, start + self.step)
            yield slice(start, stop), slice(start * rows, stop * rows)

    def buffers(self, number: int, dtype: torch.dtype) -> list[Tensor]:
        """Memory for the values of one block each."""
        size = self.per_index * min(self.first, self.step)
        return [torch.empty(size, dtype=dtype, device="cpu") for _ in range(number)]

    def rows_of(self, value: Tensor, groups: Tensor) -> Tensor:
        """The values of some groups, a row each. ``value``: from ``view``."""
        if not self.kept:
            return value.reshape(1, -1)
        return value[torch.unravel_index(groups, value.shape[: len(self.kept)])].reshape(len(groups), -1)


class _Measured(NamedTuple):
    """What is measured about a group, in float64: the first sums at y, those of the moments at the start."""

    lowest: Tensor
    highest: Tensor
    y: Tensor
    force: Tensor  # Σ rw
    size: Tensor  # Σ |rw|
    slope: Tensor  # Σ w
    start: Tensor
    first: Tensor  # Σ (x − start)
    second: Tensor  # Σ (x − start)²


def normalize(of: Inputs, groups: Axes, rule: Rule) -> Result:
    """Output, and the state for backward."""
    x, dtype = of.x, computing_dtype(of.x.dtype)
    packing = _Packing(x, groups)
    view, parts = packing.view(x), []
    assert isinstance(of.phi, float)
    buffers = packing.buffers(3, dtype)
    for block, _ in packing.blocks():
        values = view[block]
        rows, *scratch = (b[: values.numel()].view(-1, packing.members) for b in buffers)
        rows.view(values.shape).copy_(values)
        parts.append(_measure(rows, of.phi - 1, scratch))
    m = _Measured(*torch.cat(parts).unbind(1))
    found = _statistics(m, of, packing, view, dtype)

    shape = problem.statistics_shape(x.shape, groups)
    removed = norm.removed(found.center.to(dtype).reshape(shape), of.alpha, of.shift)
    gap = found.mean.reshape(shape) - removed
    spread = (found.var.reshape(shape) + gap.square()).sqrt().reshape(-1)
    spread = torch.where(found.certified, spread, 0.0)
    for some in _pieces(found.left_over, packing.members):
        rows = packing.rows_of(view, some).to(dtype)
        spread[some] = power_mean(rows - _of_groups(removed, shape, some), 2.0, None, _ROWS).double()[:, 0]
    spread = spread.to(dtype)
    rho = norm.inverse(spread, rule.eps, torch.ones_like(spread)).reshape(shape)
    y = _write(x, removed, rho if of.gamma is None else rho * of.gamma, of.beta)
    reach = torch.maximum(m.highest - found.center, found.center - m.lowest)
    some = (m.lowest < m.highest) & found.moderate
    rounding = 4 * torch.finfo(dtype).eps * torch.maximum(m.highest, -m.lowest) / torch.where(some, reach, 1.0)
    saved = problem.to_rows(
        {
            problem.CENTER: found.center,
            problem.LOWER: found.center,
            problem.UPPER: found.center,
            problem.MIDDLE: found.center,
            problem.SPREAD: spread,
            problem.MEAN: found.mean.to(dtype),
            problem.VAR: found.var.to(dtype),
            problem.MASS: torch.full_like(found.mean, packing.members),
            problem.BOUND: found.bound,
            problem.SWEEPS: found.sweeps,
            problem.UNIT: torch.where(some, reach, 0.0),
            problem.LEAST: torch.where(found.moderate, rounding.clamp_min(smallest_distance()), 0.0),
        }
    )
    return Result(y, Saved(saved))


def _measure(rows: Tensor, q: float, scratch: list[Tensor]) -> Tensor:
    """The columns of ``_Measured`` for each row, at a point next to its center."""
    lowest, highest = (end(1, keepdim=True) for end in (rows.amin, rows.amax))
    ends = lowest.double(), highest.double()
    start = _start(rows, q, ends, scratch).to(rows.dtype)
    r = torch.sub(rows, start, out=scratch[0])
    first = r.sum(1, keepdim=True)
    second = r.square_().sum(1, keepdim=True)
    moments = torch.cat([start, first, second], 1).double()
    return torch.cat([*ends, _approach(rows, q, start.double(), ends, scratch), moments], 1)


def _start(rows: Tensor, q: float, ends: tuple[Tensor, Tensor], scratch: list[Tensor]) -> Tensor:
    """The mean; of long rows, plus how far the center of a sample lies from the sample's mean."""
    mean = (rows.sum(1, keepdim=True).double() / rows.shape[1]).clamp(*ends)
    stride = rows.shape[1] // _SAMPLE
    if stride < 4:
        return mean
    sample = rows[:, ::stride].contiguous()
    middle = sample.sum(1, keepdim=True).double() / sample.shape[1]
    found = _approach(sample, q, middle, ends, scratch)[:, :1]
    return (mean + (found - middle)).clamp(*ends)


def _approach(rows: Tensor, q: float, y: Tensor, ends: tuple[Tensor, Tensor], scratch: list[Tensor]) -> Tensor:
    """Newton's method on F from y, until rounding hides the sign of F: y, force, size and slope of each row."""
    eps = torch.finfo(rows.dtype).eps
    rounding, split = rounding_of_sums(q, eps), False
    found, active = torch.empty(len(rows), 4, dtype=torch.float64, device="cpu"), torch.arange(len(rows), device="cpu")
    lowest, highest = ends
    last = torch.full_like(y, math.inf)
    for _ in range(_MAX_SWEEPS):
        head = y.to(rows.dtype)
        r, w = (buffer.view(-1)[: rows.numel()].view_as(rows) for buffer in scratch)
        torch.sub(rows, head, out=r)
        if split:
            rest = (y - head).to(rows.dtype)
            r.sub_(rest)
            y = head.double() + rest
        else:
            y = head.double()
        torch.abs(r, out=w).clamp_min_(smallest_distance()).pow_(q - 1)
        slope = w.sum(1, keepdim=True)
        force = w.mul_(r).sum(1, keepdim=True)
        size = w.abs_().sum(1, keepdim=True)
        sums = torch.cat([force, size, slope], 1).double()
        found[active] = torch.cat([y, sums], 1)
        per_slope = sums[:, :2] / (q * sums[:, 2:])
        step, resolution = per_slope[:, :1], 0.9 * rounding * per_slope[:, 1:]
        length = step.abs()
        # Steps that do not shrink occur at a tie, which the search handles. Both are False for NaN.
        going_on = (length > resolution) & (length <= 0.5 * last)
        remaining = going_on.nonzero()[:, 0]
        if not len(remaining):
            break
        split = split or bool((eps * y.abs() > resolution).any())  # y needs more digits than x has
        last = length
        y = torch.where(going_on, y + step, y).clamp(lowest, highest)
        if 4 * len(remaining) <= 3 * len(rows):
            rows, y, last, lowest, highest, active = (
                value[remaining] for value in (rows, y, last, lowest, highest, active)
            )
    return found


class _Found(NamedTuple):
    """Per group, in float64."""

    center: Tensor
    bound: Tensor
    sweeps: Tensor
    mean: Tensor
    var: Tensor
    certified: Tensor  # the sums of ``_measure`` were enough
    left_over: Tensor  # indices of the others
    moderate: Tensor  # finite, of magnitudes whose squares are too


def _statistics(m: _Measured, of: Inputs, packing: _Packing, view: Tensor, dtype: torch.dtype) -> _Found:
    """Centers and moments: from the sums where they are enough, by the search of ``center.py`` elsewhere."""
    assert isinstance(of.phi, float)
    q, count, eps = of.phi - 1, float(packing.members), torch.finfo(dtype).eps
    span, tallest = m.highest - m.lowest, torch.maximum(m.highest, -m.lowest)
    moderate = (tallest <= _MODERATE) & ((span >= 1 / _MODERATE) | (span == 0))
    offset, square = m.first / count, m.second / count
    # With sides of like size P and N keep their digits; with a start near the mean the variance does.
    clear = moderate & (span > 0) & (m.force.abs() <= 0.5 * m.size) & (offset.square() <= 0.8 * square)
    one = torch.ones_like(m.y)
    s = begin(one * of.phi, m.lowest, m.highest, one * count, one, m.y, clear)
    s = set_sweep_point(s, dtype)
    above, below = 0.5 * (m.size + m.force) / s.up.pow(q), 0.5 * (m.size - m.force) / s.down.pow(q)
    # The slope of one side is not known apart; the step is Newton's on F if both have their share.
    up, down = (0.5 * m.slope / reach.pow(q - 1) for reach in (s.up, s.down))
    nothing = torch.zeros_like(m.y)
    s = advance(s, Sums(above, below, up, down, nothing, nothing + math.inf, nothing, nothing), 1, eps, False)
    certified = clear & ~s.active
    found = _Found(
        s.center.to(dtype).double(),
        s.bound + eps * (s.center.abs() + torch.finfo(dtype).tiny),
        s.used,
        m.start + offset,
        (square - offset.square()).clamp_min(0.0),
        certified,
        (~certified).nonzero()[:, 0],
        moderate,
    )
    for some in _pieces(found.left_over, packing.members):
        rows = packing.rows_of(view, some).to(dtype)
        mean, var = norm.moments(rows, None, _ROWS)
        other = center(rows, of.phi, None, _ROWS)
        exact = torch.where(mean.isfinite(), other.center, math.nan)
        for column, value in zip(found, (exact, other.bound, other.sweeps, mean, var), strict=False):
            column[some] = value.double()[:, 0]
    return found


def _pieces(groups: Tensor, members: int) -> tuple[Tensor, ...]:
    """Groups, so many at a time that their values are about a block of the general path."""
    return groups.split(max(1, 4 * _BLOCK // members)) if len(groups) else ()


def _of_groups(value: Tensor, shape: list[int], some: Tensor) -> Tensor:
    return value.expand(shape).reshape(-1, 1)[some]


def _write(x: Tensor, removed: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    """(x − removed)·scale + offset, in slices of x's first dimension."""
    y, dtype = torch.empty_like(x), removed.dtype
    step = max(1, _BLOCK * len(x) // x.numel()) if x.dim() > 1 else len(x)
    buffer = torch.empty_like(x[:step], dtype=dtype)

    def cut(value: Tensor, rows: slice) -> Tensor:
        return value[rows] if value.dim() == x.dim() and value.shape[0] != 1 else value

    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        z = torch.sub(x[rows], cut(removed, rows), out=buffer[: len(x[rows])]).mul_(cut(scale, rows))
        y[rows] = z if offset is None else z.add_(cut(offset, rows))
    return y


def can_read(saved: Saved) -> bool:
    """Whether forward saved what ``normalize_backward`` needs: finite statistics and the floor of the distances."""
    needed = saved.groups[:, [problem.CENTER, problem.SPREAD, problem.UNIT, problem.LEAST]]
    return bool((needed.isfinite().all(1) & (needed[:, 2] <= _MODERATE) & (needed[:, 3] > 0)).all())


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Axes, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order. ``of.beta`` may be any tensor of β's shape."""
    x, dtype = of.x, computing_dtype(of.x.dtype)
    shape = problem.statistics_shape(x.shape, groups)
    packing, q = _Packing(x, groups), float(of.phi) - 1
    count = float(packing.members)

    def column(index: int) -> Tensor:
        return saved.groups[:, index].reshape(shape)

    c, spread, unit = column(problem.CENTER), column(problem.SPREAD), column(problem.UNIT)
    rho = norm.inverse(spread, rule.eps, torch.ones_like(spread))
    floor = column(problem.LEAST) * torch.where(unit > 0, unit, 1.0)
    if rule.grad_floor:
        floor = torch.maximum(floor, rule.grad_floor * spread)
    beyond = c - norm.removed(c.to(dtype), of.alpha, of.shift)  # z − r
    mean_z = column(problem.MEAN) - c + beyond
    gain = rho if of.gamma is None else rho * of.gamma

    view, grad, dx = packing.view(x), packing.view(grads.output), torch.empty_like(x)
    out, buffers = packing.view(dx), packing.buffers(3, dtype)
    by_center, by_spread = (
        torch.zeros(shape, dtype=torch.float64) if part is None else part.double()
        for part in (grads.center, grads.spread)
    )
    sums = torch.empty(2, len(saved.groups), dtype=torch.float64, device="cpu")  # Σ g and Σ gz
    flow = torch.empty(len(saved.groups), dtype=torch.float64, device="cpu")  # Σ dz
    flat = [
        value.expand(shape).reshape(-1, 1)
        for value in (c.to(dtype), floor.to(dtype), beyond, mean_z, spread, rho, gain, by_center, by_spread)
    ]
    alpha = of.alpha.expand(shape).reshape(-1, 1) if isinstance(of.alpha, Tensor) else of.alpha
    for block, some in packing.blocks():
        values = view[block]
        r, g, w = (b[: values.numel()].view(-1, packing.members) for b in buffers)
        r.view(values.shape).copy_(values)
        g.view(values.shape).copy_(grad[block])
        about, least, d, mean, s, inverse, scale, to_center, to_spread = (value[some] for value in flat)
        r.sub_(about)
        sum_g = g.sum(1, keepdim=True).double()
        sum_gz = torch.mul(g, r, out=w).sum(1, keepdim=True).double() + d * sum_g
        total = torch.abs(r, out=w).clamp_min_(least).pow_(q - 1).sum(1, keepdim=True)
        by_s = to_spread - s * inverse.square() * scale * sum_gz
        e = torch.where(s > 0, by_s / (count * s), 0.0)
        sum_dz = scale * sum_g + e * count * mean
        f = (to_center - (alpha if isinstance(alpha, float) else alpha[some]) * sum_dz) / total
        g.mul_(scale.to(dtype)).addcmul_(r, e.to(dtype)).addcmul_(w, f.to(dtype)).add_((e * d).to(dtype))
        out[block].copy_(g.view(values.shape))
        sums[0, some], sums[1, some], flow[some] = sum_g[:, 0], sum_gz[:, 0], sum_dz[:, 0]
    sum_g, sum_gz, sum_dz = (value.reshape(shape) for value in (*sums, flow))
    _, _, need_alpha, need_shift, need_gamma, need_beta, _ = needs
    d_alpha = norm.sum_like(-c * sum_dz, of.alpha) if need_alpha else None
    d_shift = norm.sum_like(sum_dz, of.shift) if need_shift else None
    d_gamma = norm.sum_like(rho * sum_gz, of.gamma) if need_gamma else None
    d_beta = norm.sum_like(sum_g, of.beta) if need_beta else None
    return dx, None, d_alpha, d_shift, d_gamma, d_beta, None
