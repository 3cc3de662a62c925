"""The normalization of groups over several processes: what it measures together, and the output here.

Collectives: one for the moments, which tell mean and rms; for another center one per sweep or round; for a spread other
than the rms one more, and those of its center if it is robust. Whatever decides how many there are has been received by
all processes.
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
from .here import Here
from .kept import Kept
from .kernels import kernels_for
from .layout import Layout
from .moments import Moments, exchange
from .spread import by_moments, power_mean, robust


def normalize(of: Inputs, groups: Axes, rule: Rule, with_kernels: bool) -> Result:
    """Output, and what backward needs: the rows that one process would keep, but for ``BY`` the same in all."""
    of = with_phi(of, groups, rule)
    lay, looks = Layout(of.x.shape, groups), can_read_values(of.x, of.weight)
    rows = Kept(lay.groups, of.x.device, computing_dtype(of.x.dtype))
    kernels = kernels_for(of._replace(phi=2.0), groups, rule, rows.table) if with_kernels and looks else None
    here = Here(of, lay, groups, rule, rows, kernels, looks)
    source = here.source()
    phi = lay.per_row(of.phi) if rule.centered else 2.0
    guess = phi if is_searched(phi) and rule.sweeps is None and looks else None
    seen = exchange(source.measure(guess), phi, lay.members, groups)

    rows.set(problem.MEAN, torch.where(seen.mass > 0, seen.mean, 0.0))
    rows.set(problem.VAR, torch.where(seen.mass > 0, seen.var, 0.0))
    rows.keep(problem.MASS, seen.mass)
    if rule.centered:
        found = find_center(source, phi, seen, groups, rows.dtype, looks, rule.sweeps, rule.interior)
        rows.set(problem.CENTER, found.center)
        rows.set(problem.LOWER, found.lower)
        rows.set(problem.UPPER, found.upper)
        rows.keep(problem.BOUND, found.bound)
        rows.keep(problem.SWEEPS, found.sweeps)
    center = rows.of(problem.CENTER)
    rows.distances(center, seen.lowest, seen.highest, problem.UNIT, problem.LEAST)
    if not rule.scaled:
        rows.set(problem.SPREAD, torch.ones_like(center))
        rows.set(problem.RHO, torch.ones_like(center))
        return Result(here.output(), Saved(rows.table))
    spread = rows.set(problem.SPREAD, _spread(here, seen))
    if rule.grad_floor:
        unit = rows.of(problem.UNIT)
        floor = rule.grad_floor * spread / torch.where(unit > 0, unit, math.inf)
        rows.keep(problem.LEAST, torch.maximum(rows.of(problem.LEAST), floor))
    rows.set(problem.RHO, inverse(spread, rule.eps, seen.mass))
    return Result(here.output(), Saved(rows.table))


def _spread(here: Here, seen: Moments) -> Tensor:
    rows, rule, groups = here.rows, here.rule, here.groups
    if rule.power == 2 and here.looks and shifts_whole_groups(here.of, groups):
        mean_z = _mean_z(here, seen)
        rows.keep(problem.MEAN_Z, mean_z)
        spread = by_moments(seen, mean_z, rows.dtype)
        if spread is not None:
            return spread
    if rule.power in (1, math.inf):
        sizes = exchange(here.sizes().measure(None), 2.0, here.lay.members, groups)
        found = sizes.mean if rule.power == 1 else torch.where(sizes.mean.isfinite(), sizes.highest, math.nan)
        return torch.where(seen.mass > 0, found, 0.0)
    if rule.power is not None:
        return power_mean(here.about, here.weight, rule.power, seen, groups)
    robustly = robust(here.sizes(), here.lay.members, rule, groups, rows.dtype, here.looks)
    rows.spread(robustly)
    return robustly.spread


def _mean_z(here: Here, seen: Moments) -> Tensor:
    """Of groups whose values all have the same α and shift."""
    if here.rule.scale_first:
        return seen.mean
    of, lay = here.of, here.lay
    alpha = of.alpha.double() if isinstance(of.alpha, Tensor) else of.alpha
    shift = None if of.shift is None else of.shift.double()
    mean, center = lay.statistic(seen.mean), lay.statistic(here.rows.of(problem.CENTER))
    return deviations(mean, center, alpha, shift, None, here.rule).expand(lay.statistics).reshape(-1, 1)
