"""The joint center of the samples of a batch, argmin_y Σ d_i^φ: one point for all channels, with a proven error bound.

**Coordinates.** With scales s and C channels, u = y/(s·√C), u_i = m_i/(s·√C), a_i² = mean over channels of v_i/s², and
r_i = u_i − u, the distance of sample i is d_i² = a_i² + |r_i|², and F(u) = Σ d_i^φ is convex. A sample that has values
in C_i of the channels only counts those C/C_i-fold, κ below: d_i² = a_i² + Σ_c κ_ic r_ic².

**Certificate.** On a ray u + te, with r⊥ the part of r at a right angle to e, which does not change along the ray,

    F″(t) = φ(φ−1) Σ d_i(t)^(φ−2) + φ(2−φ) Σ (a_i² + |r_i⊥|²) d_i(t)^(φ−4)        d_i − t ≤ d_i(t) ≤ d_i + t

so that for t ≤ ρ, whatever e, and with a_i² + |r_i⊥|² = d_i² − (e·r_i)² at t = 0,

    φ ≤ 2:   F″ ≥ m(ρ) = φ(φ−1) Σ (d_i+ρ)^(φ−2) + φ(2−φ) [ Σ d_i²(d_i+ρ)^(φ−4) − λmax Σ r_i r_iᵗ (d_i+ρ)^(φ−4) ]
    φ ≥ 2:   F″ ≥ m(ρ) = φ Σ max(a_i, d_i−ρ)^(φ−2)

A minimizer farther than ρ in the direction e would have F′(ρ) ≤ 0; but F′(ρ) ≥ ρ·m(ρ) − |∇F(u)|. If that is positive
every minimizer lies within ρ. A sample within rounding of u has no usable gradient there (at φ=1 F has a kink) but adds
φρ^(φ−1) at ρ: at φ=1 that is Vardi and Zhang's test of a sample that is itself the center. All minimizers also lie in
the hull of the samples. δ_i, the possible rounding error of r_i and a_i, is included in the proof.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

SWEEPS = 100
TOLERANCE = 1e-9  # of the median distance
_EPS = torch.finfo(torch.float64).eps
_NEAR = 8.0  # a sample within this many δ may be u itself
_TIE = 1e-14  # relative; costs that differ by less may differ by rounding only


class Solution(NamedTuple):
    """The center in coordinates u, how far the minimizers can be from it, and how much smaller F^(1/φ) can be."""

    u: Tensor
    bound: Tensor
    gap: Tensor
    sweeps: int


class _Batch(NamedTuple):
    points: Tensor  # u_i; 0 where a sample has no values
    inner: Tensor  # a_i
    kappa: Tensor  # κ_ic
    reach: Tensor  # √ max over channels of κ: d_i changes at most this much faster than u
    size: Tensor  # magnitude that the rounding error of a sample is relative to
    phi: float


class _At(NamedTuple):
    """A point u, and the samples relative to it. ``far``: samples that differ from u by more than rounding."""

    u: Tensor
    r: Tensor
    d: Tensor
    delta: Tensor
    far: Tensor
    pull: Tensor  # −∇F, of the far samples
    slope: float  # |∇F|, reduced by the kinks of the others
    cost: float

    def better_than(self, other: _At) -> bool:
        """Whether the cost is lower; of costs equal up to rounding, the flatter point is better."""
        if self.cost <= other.cost * (1 - _TIE):
            return True
        return self.cost <= other.cost * (1 + _TIE) and self.slope < other.slope


def solve(m: Tensor, v: Tensor, present: Tensor, start: Tensor, unit: Tensor, positions: int, phi: float) -> Solution:
    """The joint center of samples from their moments and ``start``; ``unit`` is s·√C, NaN means no values."""
    nowhere = torch.zeros_like(start)
    number, channels = m.shape
    zero, unknown = start.new_zeros(()), start.new_full((), math.inf)
    if not number:
        return Solution(nowhere, unknown, unknown, 0)
    points = torch.where(present, (m - start) / unit, 0.0)
    spreads = torch.where(present, v.sqrt() / unit, 0.0)
    if not bool(points.any() | spreads.any()):  # all samples are the same
        return Solution(nowhere, zero, zero, 0)
    kappa = present * (channels / present.sum(1, keepdim=True))
    size = _norm(points, kappa)
    inner = _norm(spreads, kappa)
    if positions > 1:  # the moments were rounded too
        size = size + (4 + math.log2(positions)) * (_norm(torch.where(present, m / unit, 0.0), kappa) + inner)
    d = torch.hypot(inner, size)
    yard = d.max() if phi > 2 else d[d > 0].median()  # so that no power overflows
    if not bool(d.isfinite().all() & (yard > 0)):  # squares beyond float64
        return Solution(nowhere, unknown, unknown, 0)
    batch = _Batch(points / yard, inner / yard, kappa, kappa.amax(1).sqrt(), size / yard, phi)
    at, bound, sweeps = _descend(batch, _evaluate(batch, nowhere))
    excess = (at.slope + _gradient_error(batch, at)) * bound + ((_NEAR + 2) * at.delta[~at.far]).pow(phi).sum() * 2
    level = power_mean(at.d, phi)  # convex in u, as F is
    gap = torch.where(level > 0, excess / (phi * number * level.pow(phi - 1)), 0.0)
    gap = gap + number * _EPS * level + power_mean(at.delta, phi)
    return Solution(at.u * yard, bound * yard, gap * yard, sweeps)


def power_mean(distance: Tensor, phi: float) -> Tensor:
    """(Σ d^φ / N)^(1/φ), without overflow."""
    largest = distance.max()
    relative = distance / torch.where(largest > 0, largest, 1.0)
    return largest * relative.pow(phi).mean().pow(1 / phi)


def _norm(values: Tensor, kappa: Tensor) -> Tensor:
    return (kappa * values.square()).sum(1).sqrt()


def _evaluate(batch: _Batch, u: Tensor) -> _At:
    points, inner, kappa, reach, size, phi = batch
    r = points - u
    d = torch.hypot(inner, _norm(r, kappa))
    delta = 8 * _EPS * (size + reach * u.norm())
    far = d > _NEAR * delta if phi < 2 else torch.ones_like(d, dtype=torch.bool)
    pull = (_weights(d, far, phi)[:, None] * kappa * r).sum(0)
    held = float((~far).sum()) if phi == 1 and bool((kappa > 0).all()) else 0.0
    return _At(u, r, d, delta, far, pull, max(0.0, float(pull.norm()) - held), float(d.pow(phi).sum()))


def _weights(d: Tensor, far: Tensor, phi: float) -> Tensor:
    """φ d^(φ−2), of Weiszfeld; 0 for samples that are u itself."""
    return torch.where(far, phi * torch.where(far, d, 1.0).pow(phi - 2), 0.0)


def _descend(batch: _Batch, at: _At) -> tuple[_At, Tensor, int]:
    """Lower F step by step until the bound is small or no step helps; the point, the bound, the number of steps."""
    for sweep in range(SWEEPS):
        typical = float(at.d[at.d > 0].median()) if bool((at.d > 0).any()) else 0.0
        sample = _evaluate(batch, batch.points[torch.where(batch.inner <= at.delta, at.d, math.inf).argmin()])
        if sample.cost <= at.cost * (1 + _TIE):
            bound = _bound(batch, sample)
            if bound <= TOLERANCE * typical:
                return sample, bound, sweep
            at = sample if sample.better_than(at) else at
        following = _step(batch, at)
        if following is None or float((following.u - at.u).norm()) <= 1e-4 * typical:
            at = at if following is None else following
            bound = _bound(batch, at)
            if following is None or bound <= TOLERANCE * typical:
                return at, bound, sweep + 1
        at = following
    return at, _bound(batch, at), SWEEPS


def _step(batch: _Batch, at: _At) -> _At | None:
    """The better of a Weiszfeld and a Newton step, shortened until it is an improvement; None if neither is."""
    weight = _weights(at.d, at.far, batch.phi)
    total = (weight[:, None] * batch.kappa).sum(0)
    total = torch.where(total > 0, total, 1.0)
    plain = at.pull / total / max(1.0, batch.phi - 1)
    if not bool(at.far.all()):  # u is a sample: leave it by Vardi and Zhang's step
        return _shortened(batch, at, plain * (at.slope / max(float(at.pull.norm()), 1e-300)), 60)
    steps = [_shortened(batch, at, plain, 4), _shortened(batch, at, _newton(batch, at, total), 8)]
    best = None
    for step in steps:
        if step is not None and (best is None or step.better_than(best)):
            best = step
    return best


def _shortened(batch: _Batch, at: _At, step: Tensor, tries: int) -> _At | None:
    for _ in range(tries):
        there = _evaluate(batch, at.u + step)
        if there.better_than(at):
            return there
        step = step / 4
    return None


def _newton(batch: _Batch, at: _At, total: Tensor) -> Tensor:
    """−H⁻¹∇F with H = D − QᵗQ (plus above φ = 2), D diagonal: a system of the size min(samples, channels)."""
    phi = batch.phi
    curve = (phi * abs(phi - 2) * torch.where(at.d > 0, at.d, math.inf).pow(phi - 4)).nan_to_num(posinf=0.0).sqrt()
    q = curve[:, None] * batch.kappa * at.r / total.sqrt()
    g = at.pull / total.sqrt()
    sign = -1.0 if phi < 2 else 1.0
    wide = q.shape[1] > q.shape[0]
    gram = q @ q.T if wide else q.T @ q
    system = (1 + 1e-10) * torch.eye(len(gram), dtype=g.dtype, device=g.device) + sign * gram
    solved = torch.linalg.solve_ex(system, q @ g if wide else g).result
    step: Tensor = (g - sign * (q.T @ solved) if wide else solved) / total.sqrt()
    return step


def _gradient_error(batch: _Batch, at: _At) -> Tensor:
    """A bound on the rounding error in the gradient of the far samples."""
    phi = batch.phi
    d = at.d + at.delta if phi > 2 else torch.maximum(at.d, at.delta)
    of_data = 4 * phi * max(1.0, phi - 1) * batch.reach * at.delta * d.pow(phi - 2)
    of_sums = (16 + len(d)) * _EPS * phi * batch.reach * d.pow(phi - 1)
    return torch.where(at.far, of_data + of_sums, 0.0).sum()


def _bound(batch: _Batch, at: _At) -> Tensor:
    """The least ρ found for which the certificate holds, or the hull of the samples."""
    widest = torch.where(batch.kappa > 0, at.r.abs(), 0.0).amax(0).norm()
    whole = bool((batch.kappa > 0).all())
    hull = (torch.minimum(widest, _norm(at.r, batch.kappa).max()) if whole else widest) + at.delta.max()
    held = at.delta[~at.far]
    if len(held) and not whole:
        return hull
    against = at.pull.norm() + _gradient_error(batch, at)
    nothing = against.new_zeros(())
    around = (_NEAR + 2) * held
    rho = 2 * around.max() if len(held) else torch.maximum(against / _curvature(batch, at, nothing), nothing) * 1.01
    rho = torch.where(rho > 0, rho, _EPS * at.d.max())
    while rho < hull:
        kinks = (batch.phi * (rho - around) * (rho + around).pow(batch.phi - 2)).sum()
        if kinks > against or kinks + rho * _curvature(batch, at, rho) > against:
            return rho
        rho = rho * 2
    return hull


def _curvature(batch: _Batch, at: _At, rho: Tensor) -> Tensor:
    """m(ρ): no second derivative of F, of its far samples, is smaller on any ray of length ρ. 0 if none is known."""
    phi, far = batch.phi, at.far
    kappa, d, delta = batch.kappa[far], at.d[far], at.delta[far]
    moved = batch.reach[far] * rho + delta
    counted = batch.kappa.any(0)
    if phi >= 2:
        least = torch.maximum(batch.inner[far] - delta, d - moved).clamp_min(0.0)
        return phi * (kappa * least.pow(phi - 2)[:, None]).sum(0)[counted].min()
    beyond = d + moved
    square = (d.square() - 8 * d * delta).clamp_min(0.0)
    along = (phi - 1) * beyond.pow(phi - 2) + (2 - phi) * square * beyond.pow(phi - 4)
    total = phi * (kappa * along[:, None]).sum(0)[counted]
    if not bool((total > 0).all()):
        return rho.new_zeros(())
    q = ((phi * (2 - phi)) ** 0.5 * beyond.pow(phi / 2 - 2))[:, None] * (kappa * at.r[far])[:, counted] / total.sqrt()
    largest: Tensor = torch.linalg.eigvalsh(q @ q.T if q.shape[1] > q.shape[0] else q.T @ q)[-1]
    left: Tensor = (1 - largest - 64 * _EPS * min(q.shape)).clamp_min(0.0)
    return total.min() * left
