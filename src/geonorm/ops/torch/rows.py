"""Normalization around the mean with the rms spread, computed from the moments of every sample, as the guard needs it.

Row (i, c) is sample i in channel c. Its mean m and variance v give the statistics of a channel, also after the guard
has pulled some samples towards the joint center y: x' = y + f·(x − y) has mean y + f·(m − y) and variance f²·v in each
row. The output is one affine map per row, so the tensor is read once to measure and once to write, and x' is never
stored. With all factors 1 this is BatchNorm.

**Backward.** y and f are constants. With h = γg, x̂ = ρz, G₀ = Σh and G₁ = Σhx̂ over the n values of a channel,

    dz = ρ(h − x̂·G₁/n)            dx' = dz − (α/n)·Σ dz            dx = f·dx'
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import problem
from ..checks import can_read_values
from ..grouping import Axes, Grouping, TooFewValues
from ..precision import computing_dtype, wide, wide_dtype
from ..problem import Incoming, Inputs, Result, Rule, Saved
from . import norm
from .guard import MomentsOfGuarded, combine_moments, guarded_moments, row_moments

_BLOCK = 1 << 18  # elements per block


def supports(of: Inputs, groups: Grouping, rule: Rule) -> bool:
    """Whether a normalization can be computed from rows: around the mean, with the rms spread, without weights."""
    if type(of.phi) is not float or of.phi != 2 or rule.power != 2 or of.weight is not None:
        return False
    if not (rule.centered and rule.scaled) or rule.scale_first or not isinstance(groups, Axes):
        return False
    if groups.dims != (0, *range(2, of.x.dim())):
        return False
    if groups.joint and rule.guard is None:  # sending sums is cheaper than sending rows
        return False
    return all(_is_per_channel(value, of.x) for value in (of.alpha, of.shift, of.gamma, of.beta))


def _is_per_channel(value: Any, x: Tensor) -> bool:
    if not isinstance(value, Tensor):
        return True
    missing = x.dim() - value.dim()
    return all(d + missing == 1 or size == 1 for d, size in enumerate(value.shape))


def normalize(of: Inputs, groups: Axes, rule: Rule, moments_of: MomentsOfGuarded = guarded_moments) -> Result:
    """``moments_of`` judges a guarded batch and combines the moments of its samples."""
    x = of.x
    verdict, changed = None, None
    if rule.guard is None and not can_read_values(x):
        var, mean = torch.var_mean(x.to(computing_dtype(x.dtype)), groups.dims, correction=0)
        counted = torch.full((), float(x.shape[0]), dtype=wide_dtype(x.device), device=x.device)
    elif rule.guard is None:
        mean_of_rows, deviation = row_moments(x)
        nothing, all_of_it = mean_of_rows.new_zeros(x.shape[1]), mean_of_rows.new_ones(len(x))
        mean, var, counted = combine_moments(mean_of_rows, deviation, nothing, all_of_it)
    else:
        (mean_of_rows, deviation), here = groups.gather_rows(*row_moments(x))
        values = len(mean_of_rows) * math.prod(x.shape[2:])
        if values < groups.fewest:
            raise TooFewValues(values)
        verdict, mean, var, counted = moments_of(mean_of_rows, deviation, rule.guard)
        verdict = verdict._replace(factor=verdict.factor[here], distance=verdict.distance[here])
        changed = verdict.factor if _may_differ_from_one(verdict.factor) else None
    per_channel = (1, -1, *[1] * (x.dim() - 2))
    mean, var = mean.reshape(per_channel), var.reshape(per_channel)
    joint = mean if verdict is None else verdict.center.reshape(per_channel)
    removed = norm.removed(mean, of.alpha, of.shift)
    spread = (var + (mean - removed).square()).sqrt()
    rho = (wide(spread).square() + rule.eps).rsqrt().to(spread.dtype)
    coefficients = _coefficients(removed, changed, joint, x.dim())
    scale = rho if of.gamma is None else rho * of.gamma
    scale, offset = scale.to(rho.dtype), None if of.beta is None else of.beta.to(rho.dtype)
    blocks = _blocks(x)
    if not blocks:
        z = coefficients.z(x)
        y = z * scale if offset is None else torch.addcmul(offset, z, scale)
    else:
        y = torch.empty_like(x)
        for rows in blocks:
            z = coefficients.of(rows).z(x[rows]).mul_(scale)
            y[rows] = z if offset is None else z.add_(offset)
    mass = (counted * math.prod(x.shape[2:])).expand(mean.numel())
    saved = problem.to_rows(
        {problem.CENTER: mean, problem.SPREAD: spread, problem.MEAN: mean, problem.VAR: var, problem.MASS: mass}
    )
    return Result(y.to(x.dtype), Saved(saved, None if verdict is None else verdict.to_numbers()))


def _may_differ_from_one(factor: Tensor) -> bool:
    """False only if it is known, without waiting for a device, that no sample was pulled."""
    return not can_read_values(factor) or not bool((factor == 1).all())


def _blocks(x: Tensor) -> list[slice]:
    """Slices of samples of a large tensor, so that intermediate results stay in the cache; empty in a trace."""
    if not can_read_values(x) or x.numel() <= 2 * _BLOCK:
        return []
    step = max(1, _BLOCK * len(x) // x.numel())
    return [slice(start, start + step) for start in range(0, len(x), step)]


class _Coefficients(NamedTuple):
    """z of a value x is (x − about)·factor + beyond, per row; exactly x − removed where the factor is 1."""

    about: Tensor
    factor: Tensor | None
    beyond: Tensor | None

    def z(self, x: Tensor) -> Tensor:
        z = x - self.about
        return z if self.factor is None or self.beyond is None else z * self.factor + self.beyond

    def of(self, rows: slice) -> _Coefficients:
        """The coefficients of some samples."""
        if self.factor is None or self.beyond is None:
            return self
        return _Coefficients(self.about[rows], self.factor[rows], self.beyond[rows])


def _coefficients(removed: Tensor, factor: Tensor | None, joint: Tensor, rank: int) -> _Coefficients:
    if factor is None:
        return _Coefficients(removed, None, None)
    f = factor.reshape(-1, *[1] * (rank - 1))
    inside = f == 1
    return _Coefficients(torch.where(inside, removed, joint), f, torch.where(inside, 0.0, joint - removed))


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Axes, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order. Over several processes, those of parameters are parts of the whole."""
    x, alpha, shift, gamma = of.x, of.alpha, of.shift, of.gamma
    _, _, need_alpha, need_shift, need_gamma, need_beta, _ = needs
    dims = groups.dims
    statistics = problem.statistics_of(saved.groups, x, groups)
    center, spread = statistics.center, statistics.spread
    removed = norm.removed(center, alpha, shift)
    rho = (wide(spread).square() + rule.eps).rsqrt().to(spread.dtype)
    n = statistics.mass.to(spread.dtype)
    factor, joint = None, center
    if saved.samples is not None:
        factor = problem.factors_of(saved.samples, x)
        factor = factor if _may_differ_from_one(factor) else None
        joint = problem.joint_center_of(saved.samples, x).reshape(center.shape)
    coefficients = _coefficients(removed, factor, joint, x.dim())
    usable = None if factor is None else ~factor.isnan().reshape(-1, *[1] * (x.dim() - 1))

    def values(rows: slice) -> tuple[Tensor, Tensor]:
        z, g = coefficients.of(rows).z(x[rows]), grads.output[rows].to(spread.dtype)
        if usable is not None:
            z, g = torch.where(usable[rows], z, 0.0), torch.where(usable[rows], g, 0.0)
        return z, g

    blocks = _blocks(x)
    whole = [slice(None)]
    # Sums over the values in this process give the gradients of the parameters.
    parts = []
    for rows in blocks or whole:
        z, g = values(rows)
        parts.append([part.sum(dims, keepdim=True) for part in (g, g * z, z if groups.joint else z[:0])])
    sum_g, sum_gz, sum_z = (functools.reduce(torch.add, column) for column in zip(*parts, strict=True))
    nothing = torch.zeros_like(center)
    by_center, by_spread = (nothing if part is None else part for part in (grads.center, grads.spread))
    all_g, all_gz, by_center, by_spread = groups.join(sum_g, sum_gz, by_center, by_spread)
    scale = rho if gamma is None else rho * gamma
    curve = torch.where(spread > 0, by_spread / spread, 0.0) / n - scale * rho.square() * all_gz / n
    # Σ dz over all values; over those in this process it gives the gradients of shift and α.
    gap = center - removed
    total = scale * all_g + curve * n * gap
    flat = (by_center - alpha * total) / n
    dx = torch.empty_like(x) if blocks else None
    for rows in blocks or whole:
        z, g = values(rows)
        part = z.mul_(curve).addcmul_(g, scale.to(z.dtype)).add_(flat)
        if usable is not None and factor is not None:
            f = factor[rows].reshape(-1, *[1] * (x.dim() - 1))
            part = torch.where(usable[rows], part * f, 0.0)
        if dx is None:
            dx = part.to(x.dtype)
        else:
            dx[rows] = part
    d_alpha = d_shift = d_gamma = d_beta = None
    if need_alpha or need_shift:
        dz = scale * sum_g + curve * (sum_z if groups.joint else n * gap)
        d_alpha = _sum_to(-center * dz, alpha) if need_alpha else None
        d_shift = _sum_to(dz, shift) if need_shift else None
    if need_gamma:
        d_gamma = _sum_to(rho * sum_gz, gamma)
    if need_beta:
        d_beta = _sum_to(sum_g, of.beta)
    return dx, None, d_alpha, d_shift, d_gamma, d_beta, None


def _sum_to(value: Tensor, parameter: Any) -> Tensor:
    return value.sum_to_size(parameter.shape).to(parameter.dtype)
