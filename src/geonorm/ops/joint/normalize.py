"""Normalization of groups over several processes: the joint statistics, and the output of this process.

Collectives: one for the moments, which give mean and rms. Another center needs one per sweep or round. A spread other
than the rms needs one more, and a robust one also those of its center. The number of collectives depends only on data
that all processes have received.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import problem
from ..checks import can_read_values
from ..grouping import Axes
from ..precision import computing_dtype
from ..problem import Inputs, Result, Rule, Saved
from ..torch.norm import deviations, inverse, shifts_whole_groups
from ..torch.normalize import with_phi
from .center import find_center, is_searched
from .kernels import kernels_for
from .layout import Layout
from .local_inputs import LocalInputs
from .moments import Moments, exchange
from .saved_rows import SavedRows
from .spread import by_moments, power_mean, robust


def normalize(of: Inputs, groups: Axes, rule: Rule, with_kernels: bool) -> Result:
    """Output, and the state for backward: the rows that one process would save, the same in all except for ``BY``."""
    of = with_phi(of, groups, rule)
    lay, can_read = Layout(of.x.shape, groups), can_read_values(of.x, of.weight)
    rows = SavedRows(lay.groups, of.x.device, computing_dtype(of.x.dtype))
    kernels = kernels_for(of._replace(phi=2.0), groups, rule, rows.table) if with_kernels and can_read else None
    local = LocalInputs(of, lay, groups, rule, rows, kernels, can_read)
    source = local.source()
    phi = lay.per_row(of.phi) if rule.centered else 2.0
    guess = phi if is_searched(phi) and rule.sweeps is None and can_read else None
    seen = exchange(source.measure(guess), phi, lay.members, groups)

    rows.write_rounded(problem.MEAN, torch.where(seen.mass > 0, seen.mean, 0.0))
    rows.write_rounded(problem.VAR, torch.where(seen.mass > 0, seen.var, 0.0))
    rows.write(problem.MASS, seen.mass)
    if rule.centered:
        found = find_center(source, phi, seen, groups, rows.dtype, can_read, rule.sweeps, rule.phi_strictly_inside)
        rows.write_rounded(problem.CENTER, found.center)
        rows.write_rounded(problem.LOWER, found.lower)
        rows.write_rounded(problem.UPPER, found.upper)
        rows.write(problem.BOUND, found.bound)
        rows.write(problem.SWEEPS, found.sweeps)
    center = rows.column(problem.CENTER)
    rows.write_distances(center, seen.lowest, seen.highest, problem.UNIT, problem.LEAST)
    if not rule.scaled:
        rows.write_rounded(problem.SPREAD, torch.ones_like(center))
        rows.write_rounded(problem.RHO, torch.ones_like(center))
        return Result(local.output(), Saved(rows.table))
    spread = rows.write_rounded(problem.SPREAD, _spread(local, seen))
    if rule.grad_floor:
        unit = rows.column(problem.UNIT)
        floor = rule.grad_floor * spread / torch.where(unit > 0, unit, math.inf)
        rows.write(problem.LEAST, torch.maximum(rows.column(problem.LEAST), floor))
    rows.write_rounded(problem.RHO, inverse(spread, rule.eps, seen.mass))
    return Result(local.output(), Saved(rows.table))


def _spread(local: LocalInputs, seen: Moments) -> Tensor:
    rows, rule, groups = local.rows, local.rule, local.groups
    if rule.power == 2 and local.can_read and shifts_whole_groups(local.of, groups):
        mean_z = _mean_z(local, seen)
        rows.write(problem.MEAN_Z, mean_z)
        spread = by_moments(seen, mean_z, rows.dtype)
        if spread is not None:
            return spread
    if rule.power in (1, math.inf):
        sizes = exchange(local.sizes().measure(None), 2.0, local.lay.members, groups)
        found = sizes.mean if rule.power == 1 else torch.where(sizes.mean.isfinite(), sizes.highest, math.nan)
        return torch.where(seen.mass > 0, found, 0.0)
    if rule.power is not None:
        return power_mean(local.about, local.weight, rule.power, seen, groups)
    robustly = robust(local.sizes(), local.lay.members, rule, groups, rows.dtype, local.can_read)
    rows.write_robust_spread(robustly)
    return robustly.spread


def _mean_z(local: LocalInputs, seen: Moments) -> Tensor:
    """The mean of z in groups whose values all have the same α and shift."""
    if local.rule.scale_first:
        return seen.mean
    of, lay = local.of, local.lay
    alpha = of.alpha.double() if isinstance(of.alpha, Tensor) else of.alpha
    shift = None if of.shift is None else of.shift.double()
    mean, center = lay.statistic(seen.mean), lay.statistic(local.rows.column(problem.CENTER))
    return deviations(mean, center, alpha, shift, None, local.rule).expand(lay.statistics).reshape(-1, 1)
