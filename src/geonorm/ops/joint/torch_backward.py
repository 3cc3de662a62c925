"""Backward of this process in plain torch: its part of the sums, and the gradients once all sums are known."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes
from ..precision import computing_dtype
from ..problem import Incoming, Inputs, Rule
from ..torch.derivatives import slope_of
from ..torch.norm import deviations, sum_like
from ..torch.search import smallest_distance
from ..torch.spread import mean_abs_factor
from .layout import Layout


class Sums(NamedTuple):
    """Sums over the values of each group in this process; all that has to be exchanged."""

    center: Tensor  # Σαh
    spread: Tensor  # Σh·x̂
    directions: Tensor  # Σασ
    slope: Tensor  # Σw; at φ = 1 and ∞ the ties of the lower of the two values
    moment: Tensor  # Σ sgn(r)|r|^q ln|r|, r in units of the largest; at φ = 1 and ∞ the ties of the upper one
    divisor: Tensor  # what σ has to be divided by, where that is a sum over values
    by_center: Tensor  # gradient of the center itself, if it was used
    by_spread: Tensor


class Flow(NamedTuple):
    """Per group: dx = ρh + spread·σ + center·w, w at φ = 1 and ∞ being ``lower`` or ``upper`` at those values."""

    spread: Tensor
    center: Tensor
    lower: Tensor
    upper: Tensor
    d_spread: Tensor
    d_center: Tensor
    gain: Tensor  # of the center by F: ∂c = gain·∂F
    by_phi: Tensor  # ∂c/∂φ


class TorchBackward:
    """Sums and gradients for the values of this process."""

    def __init__(
        self, grads: Incoming, of: Inputs, groups: Axes, rule: Rule, saved: Tensor, needs: tuple[bool, ...]
    ) -> None:
        self.of, self.rule, self.groups, self.needs, self.saved = of, rule, groups.here, needs, saved
        self.lay, self.dtype = Layout(of.x.shape, groups), computing_dtype(of.x.dtype)
        self.grads = grads
        self.phi = self.lay.per_row(of.phi)
        weight = of.weight
        self.normalized_weight: Tensor | None = None
        values, g = of.x.to(self.dtype), grads.output.to(self.dtype)
        if weight is not None:
            values, g = torch.where(weight > 0, values, 0.0), torch.where(weight > 0, g, 0.0)
            mass = self.lay.statistic(saved[:, problem.MASS])
            self.normalized_weight = (weight.double() / torch.where(mass > 0, mass, 1.0)).to(self.dtype)
        self.values, self.g = values, g
        self.center, self.rho, self.spread = (
            self.column(index) for index in (problem.CENTER, problem.RHO, problem.SPREAD)
        )
        self.z = deviations(values, self.center, of.alpha, of.shift, groups, rule)
        self.x_hat = self.z * self.rho
        self.h = g if of.gamma is None else g * of.gamma
        self.about = values if rule.scale_first else self.z
        self.sigma: Tensor | None = None
        self.slopes: Tensor | None = None
        if rule.scaled:
            self.sigma, self.slopes = self._direction()
        self.pull = self._pull() if rule.centered else None

    def column(self, index: int) -> Tensor:
        return self.lay.statistic(self.saved[:, index]).to(self.dtype)

    def weighted(self, value: Tensor) -> Tensor:
        return value if self.normalized_weight is None else value * self.normalized_weight

    def _direction(self) -> tuple[Tensor, Tensor | None]:
        """σ, and what it has to be divided by, where that is a sum over the values."""
        z, power = self.about, self.rule.power
        if power == 2:
            return self.weighted(z), None
        if power == math.inf:
            ties = (z.abs() == self.spread).to(self.dtype) * z.sign()
            ties = ties if self.normalized_weight is None else torch.where(self.normalized_weight > 0, ties, 0.0)
            return ties, ties.abs()
        if power is not None:
            ratio = z / torch.where(self.spread == 0, 1.0, self.spread)
            return self.weighted(z.sign() if power == 1 else ratio.abs().pow(power - 1) * ratio.sign()), None
        a, w = self._slopes(z.abs(), problem.MIDDLE, problem.UNIT_2, problem.LEAST_2, self.rule.spread_phi)
        self.size_distance = a
        w = self.weighted(w)
        floored = self.column(problem.FLOORED) > 0
        return torch.where(floored, self.weighted(z.sign()), w * z.sign()), w

    def _slopes(self, x: Tensor, center: int, unit: int, least: int, phi: float | Tensor) -> tuple[Tensor, Tensor]:
        """Distances from a center in units of the largest, with their sign, and their powers φ − 2."""
        reach = self.lay.statistic(self.saved[:, unit])
        safe = torch.where(reach > 0, reach, 1.0)
        down = torch.where(safe > 0.125 * torch.finfo(self.dtype).max, 0.0625, 1.0)  # x − c may be too large
        r = x * down.to(self.dtype) - self.column(center) * down.to(self.dtype)
        a = r / (safe * down).to(self.dtype)
        power = phi.reshape(self.lay.statistics) if isinstance(phi, Tensor) else phi
        w = slope_of(a.abs(), power, self.column(least), self.groups, reach.to(self.dtype), reach.to(self.dtype))
        return a, w

    def _pull(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Signed distances and w; ties of the lower and of the upper value."""
        phi = self.phi
        lower, upper = ((self.values == self.column(i)).to(self.dtype) for i in (problem.LOWER, problem.UPPER))
        inner: float | Tensor
        if isinstance(phi, Tensor):
            inner = torch.where((phi == 1) | (phi == math.inf), 2.0, phi)
        elif phi in (1, math.inf):
            return lower, torch.ones_like(lower), self.weighted(lower), self.weighted(upper)
        else:
            inner = phi
        a, w = self._slopes(self.values, problem.CENTER, problem.UNIT, problem.LEAST, inner)
        return a, self.weighted(w), self.weighted(lower), self.weighted(upper)

    def _edges(self) -> Tensor | bool:
        """Where the center lies between two values."""
        phi = self.phi
        equal = self.lay.statistic(self.saved[:, problem.UNIT]) == 0
        if isinstance(phi, Tensor):
            return ((phi == 1) | (phi == math.inf)).reshape(self.lay.statistics) & ~equal
        return ~equal if phi in (1, math.inf) else False

    def _moments(self) -> Tensor:
        """sgn(r)|r|^q ln|r|, whose sum φ's gradient needs."""
        assert self.pull is not None
        r = self.pull[0]
        return self.weighted(self._signed_power(r, self.phi) * r.abs().clamp_min(smallest_distance()).log())

    def _signed_power(self, r: Tensor, phi: float | Tensor) -> Tensor:
        q = (phi - 1).to(self.dtype).reshape(self.lay.statistics) if isinstance(phi, Tensor) else phi - 1
        return r.abs().clamp_min(smallest_distance()).pow(q) * r.sign()

    def sums(self) -> Sums:
        """The sums over the values of this process."""

        def total(value: Tensor | None) -> Tensor:
            if value is None:
                return torch.zeros(self.lay.groups, 1, dtype=torch.float64, device=self.z.device)
            return self.groups.sum(value).reshape(-1, 1).double()

        alpha: Any = self.of.alpha
        plain = isinstance(alpha, float) and alpha == 1
        slope = moment = None
        if self.pull is not None:
            _, w, lower, upper = self.pull
            edges = self._edges()
            slope = w if edges is False else torch.where(torch.as_tensor(edges), lower, w)
            if edges is not False:
                moment = torch.where(torch.as_tensor(edges), upper, 0.0)
            if self.needs[1]:
                inner = self._moments()
                moment = inner if moment is None else torch.where(torch.as_tensor(edges), upper, inner)
        direction = None if self.sigma is None or self.rule.scale_first else self.sigma
        given = [
            None if part is None else part.reshape(-1, 1).double() for part in (self.grads.center, self.grads.spread)
        ]
        return Sums(
            total(self.h if plain else self.h * alpha),
            total(self.h * self.x_hat),
            total(direction if plain or direction is None else direction * alpha),
            total(slope),
            total(moment),
            total(self.slopes),
            *[total(None) if part is None else part for part in given],
        )

    def gradients(self, here: Sums, flow: Flow) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs, in their order."""
        of, rule = self.of, self.rule

        def each(value: Tensor) -> Tensor:
            return self.lay.statistic(value).to(self.dtype)

        dz = self.h * self.rho
        d_values = dz
        if self.sigma is not None:
            through = self.sigma * each(flow.spread)
            d_values = dz + through
            dz = dz if rule.scale_first else d_values
        d_phi = d_weight = None
        if self.pull is not None:
            _, w, lower, upper = self.pull
            edges = self._edges()
            if edges is not False:
                ends = lower * each(flow.lower) + upper * each(flow.upper)
                w = torch.where(torch.as_tensor(edges), ends, w)
            d_values = d_values + w * each(flow.center)
            if self.needs[1] and isinstance(self.phi, Tensor):
                d_phi = self._d_phi(here, flow)
        if self.needs[6] and of.weight is not None:
            d_weight = self._d_weight(flow).to(of.weight.dtype)
        if of.weight is not None:
            d_values = torch.where(of.weight > 0, d_values, 0.0)
        _, _, need_alpha, need_shift, need_gamma, need_beta, _ = self.needs
        d_alpha = -sum_like(dz * self.center, of.alpha) if need_alpha else None
        d_shift = sum_like(dz, of.shift) if need_shift else None
        d_gamma = sum_like(self.g * self.x_hat, of.gamma) if need_gamma else None
        d_beta = sum_like(self.g, of.beta) if need_beta else None
        return d_values.to(of.x.dtype), d_phi, d_alpha, d_shift, d_gamma, d_beta, d_weight

    def _d_phi(self, here: Sums, flow: Flow) -> Tensor:
        """From the gradient of the center in this process; the sum over processes is the gradient of φ."""
        own = here.by_center - (self.saved[:, problem.RHO, None] * here.center + flow.spread * here.directions)
        by_phi = own * flow.by_phi
        finite = self.saved[:, problem.CENTER, None].isfinite()
        by_phi = torch.where(finite | (own != 0), by_phi, 0.0)  # a NaN group without an incoming gradient adds nothing
        assert isinstance(self.of.phi, Tensor)
        return self.lay.statistic(by_phi).sum_to_size(self.of.phi.shape).to(self.of.phi.dtype)

    def _d_weight(self, flow: Flow) -> Tensor:
        """A weight counts in the center and in the spread, in proportion to the sum of all weights."""
        rule, found = self.rule, torch.zeros_like(self.values)
        if self.pull is not None:
            r = self.pull[0]
            found = self.lay.statistic(flow.d_center * flow.gain) * self._signed_power(r, self.phi)
        d_spread, size = self.lay.statistic(flow.d_spread), self.about.abs()
        if rule.scaled and rule.power is not None and rule.power != math.inf:
            ratio = size / torch.where(self.spread == 0, 1.0, self.spread)
            found = found + d_spread * self.spread * (ratio.pow(rule.power) - 1) / rule.power
        elif rule.scaled and rule.power is None:
            least = rule.spread_floor * mean_abs_factor()
            floored = self.column(problem.FLOORED) > 0
            unit = self.lay.statistic(self.saved[:, problem.UNIT_2])
            by_middle = self.lay.statistic(flow.spread) * unit / (rule.spread_phi - 1)
            by_middle = by_middle * self._signed_power(self.size_distance, rule.spread_phi)
            found = found + torch.where(floored, d_spread * (least * size - self.spread), by_middle)
        mass = self.lay.statistic(self.saved[:, problem.MASS])
        assert self.of.weight is not None
        return torch.where(self.of.weight > 0, found / torch.where(mass > 0, mass, 1.0), 0.0)
