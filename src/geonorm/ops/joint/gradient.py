"""Backward of groups over several processes, in one collective.

``ops/torch/norm.py`` has the mathematics. The gradient of x is linear in two numbers per group, the gradients of the
spread (ds) and of the center (dc), and both are sums over all values. With σ = ∂s/∂z and w = |x − c|^(φ−2), both up to
a factor per group, dc = −ρΣαh − ds·Σασ. So all sums can be computed before ds and dc are known, and sent at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes
from ..learned import LearnedPhi
from ..problem import Incoming, Inputs, Rule, Saved
from ..torch.gaussian import robust_factor
from ..torch.normalize import with_phi
from ..torch.spread import mean_abs_factor
from .kernel_backward import kernel_backward
from .layout import Layout
from .torch_backward import Flow, Sums, TorchBackward


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Axes, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order. Those of parameters are this process's part of the sum."""
    offset, of = of.phi, with_phi(of, groups, rule)
    by_kernels = kernel_backward(grads, of, groups, rule, saved.groups, needs)
    part = TorchBackward(grads, of, groups, rule, saved.groups, needs) if by_kernels is None else by_kernels
    here = part.sums()
    phi = Layout(of.x.shape, groups).per_row(of.phi)
    flow = flow_of(Sums(*groups.join(*here)), saved.groups, phi, rule, of.weight is not None)
    gradients = list(part.gradients(here, flow))
    if gradients[1] is not None and isinstance(offset, Tensor):
        by_phi = gradients[1].reshape(offset.shape)
        gradients[1] = by_phi if rule.learned is None else LearnedPhi(offset, *rule.learned).gradient(by_phi)
    return tuple(gradients)


def flow_of(all_of: Sums, saved: Tensor, phi: float | Tensor, rule: Rule, weighted: bool) -> Flow:
    """The gradients through spread and center, from the sums over all processes; see ``flow_of`` of csrc/gradient.h.

    All are ``[groups, 1]`` in float64. Weights are divided by their sum.
    """

    def column(index: int) -> Tensor:
        return saved[:, index, None].double()

    rho, spread, mass = column(problem.RHO), column(problem.SPREAD), column(problem.MASS)
    members = torch.ones_like(mass) if weighted else torch.where(mass > 0, mass, 1.0)
    count = torch.where(all_of.divisor == 0, 1.0, all_of.divisor)
    d_spread = all_of.by_spread - spread * rho * rho * all_of.spread
    if not rule.scaled:
        through_spread = torch.zeros_like(spread)
    elif rule.power == 2:
        through_spread = torch.where(spread == 0, 0.0, d_spread / (members * spread))
    elif rule.power == math.inf:
        through_spread = d_spread / count
    elif rule.power is not None:
        through_spread = d_spread / members
    else:
        floor = d_spread * rule.spread_floor * mean_abs_factor() / members
        through_spread = torch.where(
            column(problem.FLOORED) > 0, floor, d_spread * robust_factor(rule.spread_phi) / count
        )
    if not rule.centered:
        zero = torch.zeros_like(spread)
        return Flow(through_spread, zero, zero, zero, d_spread, zero, zero, zero)
    d_center = all_of.by_center - (rho * all_of.center + through_spread * all_of.directions)
    exponent = phi if isinstance(phi, Tensor) else torch.full_like(spread, phi)
    equal = column(problem.UNIT) == 0
    shared = equal | (exponent == 2)
    edges = ((exponent == 1) | (exponent == math.inf)) & ~equal
    total = torch.where(shared, members, torch.where(all_of.slope == 0, 1.0, all_of.slope))
    ends = [0.5 / torch.where(ties == 0, 1.0, ties) for ties in (all_of.slope, all_of.moment)]
    lower, upper = (torch.where(edges, end, 0.5) for end in ends)  # equal values have both halves
    gain = torch.where(edges, 0.0, column(problem.UNIT) / total / (exponent - 1))
    center = torch.where(edges, d_center, d_center / total)
    by_phi = torch.where(edges, 0.0, gain * all_of.moment)
    return Flow(through_spread, center, lower, upper, d_spread, d_center, gain, by_phi)
