"""The normalization around the mean, with the rms spread, from the moments of every sample: what the guard needs.

Row (i, c) is sample i in channel c. Its mean m and variance v give the statistics of a channel, also after the guard
has pulled some samples towards the joint center y: x' = y + f·(x − y) has mean y + f·(m − y) and variance f²·v in each
row. The output is one affine map per row, so that the tensor is read once to measure and once to write, and x' is never
stored. With factors of 1 all of it is BatchNorm.

**Backward.** y and f are constants. With h = γg, x̂ = ρz, G₀ = Σh and G₁ = Σhx̂ over the n values of a channel,

    dz = ρ(h − x̂·G₁/n)            dx' = dz − (α/n)·Σ dz            dx = f·dx'
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..distributed import Across, gather_rows
from ..ops import Axes, Grouping, GuardedMoments, can_look, guarded_moments
from ._norm import Inputs, NormStatistics, Rule

_BLOCK = 1 << 18  # elements that are worked on at a time


def by_rows(of: Inputs, groups: Grouping, rule: Rule) -> bool:
    """Whether a normalization can be made from rows: around the mean, with the rms, all values alike."""
    if type(of.phi) is not float or of.phi != 2 or rule.power != 2 or of.weight is not None:
        return False
    if not (rule.centered and rule.scaled) or rule.scale_first or not isinstance(groups, Axes):
        return False
    if groups.dims != (0, *range(2, of.x.dim())):
        return False
    if groups.joint and rule.guard is None:  # sums travel lighter than rows
        return False
    return all(_is_per_channel(value, of.x) for value in (of.alpha, of.shift, of.gamma, of.beta))


def _is_per_channel(value: Any, x: Tensor) -> bool:
    if not isinstance(value, Tensor):
        return True
    missing = x.dim() - value.dim()
    return all(d + missing == 1 or size == 1 for d, size in enumerate(value.shape))


def normalize_rows(of: Inputs, groups: Axes, rule: Rule) -> tuple[Tensor, NormStatistics, Tensor | None]:
    """Output, statistics, and the factors of the samples if they are guarded."""
    with torch.no_grad():
        mean, deviation = row_moments(of.x.detach())
        group = groups.name if isinstance(groups, Across) else ""
        lengths = groups.lengths if isinstance(groups, Across) else None
        found = _guarded_moments(mean, deviation, math.inf if rule.guard is None else rule.guard, group, lengths)
    factor = None if rule.guard is None else found.factor
    changed = factor if factor is not None and _may_differ_from_one(factor) else None
    per_channel = [value.reshape(1, -1, *[1] * (of.x.dim() - 2)) for value in (found.mean, found.var, found.center)]
    y, *statistics = _Rows.apply(  # type: ignore[no-untyped-call]
        of.x, of.alpha, of.shift, of.gamma, of.beta, changed, *per_channel, found.samples, group, rule
    )
    return y, NormStatistics(*statistics), factor


def _may_differ_from_one(factor: Tensor) -> bool:
    """False only if it is known, without waiting for another device, that no sample was touched."""
    return not (can_look(factor) and factor.device.type == "cpu") or not bool((factor == 1).all())


def row_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every sample in every channel, of x as (N, C, *); in the computing dtype."""
    values = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if values.dim() == 2:
        return values, torch.zeros_like(values)
    dims = tuple(range(2, x.dim()))
    if not can_look(x):
        var, mean = torch.var_mean(values, dims, correction=0)
        return mean, var.sqrt()
    mean = values.mean(dims)
    count = math.prod(x.shape[2:])
    step = max(1, _BLOCK * len(x) // max(1, x.numel()))
    parts = [
        torch.linalg.vector_norm(part - about.reshape(*about.shape, *[1] * len(dims)), dim=dims)
        for part, about in zip(values.split(step), mean.split(step), strict=True)
    ]
    deviation = torch.cat(parts) / math.sqrt(count)
    fine = mean.isfinite() & deviation.isfinite()
    if x.device.type == "cpu" and not bool(fine.all()):  # sums too large for float32, if not the values themselves
        rows = (~fine).any(1).nonzero().flatten()
        var, about = torch.var_mean(values[rows].double(), dims, correction=0)
        mean = mean.index_copy(0, rows, about.to(mean.dtype))
        deviation = deviation.index_copy(0, rows, var.sqrt().to(mean.dtype))
    return mean, deviation


def _blocks(x: Tensor) -> list[slice]:
    """Samples of a large tensor, a few at a time, so that what is made of them stays in the cache; none in a trace."""
    if not can_look(x) or x.numel() <= 2 * _BLOCK:
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
        """Those of some samples."""
        if self.factor is None or self.beyond is None:
            return self
        return _Coefficients(self.about[rows], self.factor[rows], self.beyond[rows])


def _coefficients(removed: Tensor, factor: Tensor | None, joint: Tensor, rank: int) -> _Coefficients:
    if factor is None:
        return _Coefficients(removed, None, None)
    f = factor.reshape(-1, *[1] * (rank - 1))
    inside = f == 1
    return _Coefficients(torch.where(inside, removed, joint), f, torch.where(inside, 0.0, joint - removed))


def _removed(mean: Tensor, alpha: float | Tensor, shift: Tensor | None) -> Tensor:
    removed = mean if isinstance(alpha, float) and alpha == 1 else alpha * mean
    return removed if shift is None else removed - shift


class _Rows(torch.autograd.Function):
    """The tensors of one normalization and the moments of its channels to output, center, spread, mean, var, mass.

    Moments and statistics have the shape (1, C, 1, ...).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        alpha: float | Tensor,
        shift: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        factor: Tensor | None,
        mean: Tensor,
        var: Tensor,
        joint: Tensor,
        samples: Tensor,
        group: str,
        rule: Rule,
    ) -> tuple[Tensor, ...]:
        removed = _removed(mean, alpha, shift)
        spread = (var + (mean - removed).square()).sqrt()
        rho = (spread.double().square() + rule.eps).rsqrt().to(spread.dtype)
        coefficients = _coefficients(removed, factor, joint, x.dim())
        scale = rho if gamma is None else rho * gamma
        scale, offset = scale.to(rho.dtype), None if beta is None else beta.to(rho.dtype)
        blocks = _blocks(x)
        if not blocks:
            z = coefficients.z(x)
            y = z * scale if offset is None else torch.addcmul(offset, z, scale)
        else:
            y = torch.empty_like(x)
            for rows in blocks:
                z = coefficients.of(rows).z(x[rows]).mul_(scale)
                y[rows] = z if offset is None else z.add_(offset)
        mass = (samples * math.prod(x.shape[2:])).expand(mean.shape)
        statistics = [value.expand(mean.shape).clone() for value in (mean, spread, mean, var, mass)]
        return y.to(x.dtype), *statistics  # outputs of one function must not share memory

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, alpha, shift, gamma, beta, factor, _, _, joint, _, ctx.group, ctx.rule = inputs
        _, center, spread, mean, var, mass = output
        ctx.mark_non_differentiable(mean, var, mass)
        ctx.alpha = alpha if not isinstance(alpha, Tensor) else None
        ctx.beta = None if beta is None else (beta.shape, beta.dtype)
        ctx.save_for_backward(
            x, alpha if isinstance(alpha, Tensor) else None, shift, gamma, factor, joint, center, spread, mass
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, alpha, shift, gamma, factor, joint, center, spread, mass = ctx.saved_tensors
        _, need_alpha, need_shift, need_gamma, need_beta, *_ = ctx.needs_input_grad
        if ctx.group and torch.is_grad_enabled():
            raise RuntimeError(
                "expected a first derivative (got create_graph=True): a normalization over several processes has no "
                "second one; geonorm.unsync(model) normalizes in each process alone, which has"
            )
        alpha = ctx.alpha if alpha is None else alpha
        dims = (0, *range(2, x.dim()))
        removed = _removed(center, alpha, shift)
        rho = (spread.double().square() + ctx.rule.eps).rsqrt().to(spread.dtype)
        n = mass.to(spread.dtype)
        coefficients = _coefficients(removed, factor, joint, x.dim())
        usable = None if factor is None else ~factor.isnan().reshape(-1, *[1] * (x.dim() - 1))

        def values(rows: slice) -> tuple[Tensor, Tensor]:
            z, g = coefficients.of(rows).z(x[rows]), grads[0][rows].to(spread.dtype)
            if usable is not None:
                z, g = torch.where(usable[rows], z, 0.0), torch.where(usable[rows], g, 0.0)
            return z, g

        blocks = [] if torch.is_grad_enabled() else _blocks(x)
        whole = [slice(None)]
        # Sums over the values here: what parameters get.
        parts = []
        for rows in blocks or whole:
            z, g = values(rows)
            parts.append([part.sum(dims, keepdim=True) for part in (g, g * z, z if ctx.group else z[:0])])
        sum_g, sum_gz, sum_z = (functools.reduce(torch.add, column) for column in zip(*parts, strict=True))
        by_center, by_spread = grads[1], grads[2]
        all_g, all_gz = sum_g, sum_gz
        if ctx.group:
            sums = Across(dims, ctx.group).join(sum_g, sum_gz, by_center, by_spread)
            all_g, all_gz, by_center, by_spread = sums
        scale = rho if gamma is None else rho * gamma
        curve = torch.where(spread > 0, by_spread / spread, 0.0) / n - scale * rho.square() * all_gz / n
        # Σ dz over all values, and over those here: what a shift or α gets.
        gap = center - removed
        total = scale * all_g + curve * n * gap
        flat = (by_center - alpha * total) / n
        dx = torch.empty_like(x) if blocks else None
        for rows in blocks or whole:
            z, g = values(rows)
            part = g * scale + z * curve + flat if dx is None else z.mul_(curve).addcmul_(g, scale).add_(flat)
            if usable is not None and factor is not None:
                f = factor[rows].reshape(-1, *[1] * (x.dim() - 1))
                part = torch.where(usable[rows], part * f, 0.0)
            if dx is None:
                dx = part.to(x.dtype)
            else:
                dx[rows] = part
        d_alpha = d_shift = d_gamma = d_beta = None
        if need_alpha or need_shift:
            dz = scale * sum_g + curve * (sum_z if ctx.group else n * gap)
            d_alpha = _sum_to(-center * dz, alpha) if need_alpha else None
            d_shift = _sum_to(dz, shift) if need_shift else None
        if need_gamma:
            d_gamma = _sum_to(rho * sum_gz, gamma)
        if need_beta:
            d_beta = sum_g.sum_to_size(ctx.beta[0]).to(ctx.beta[1])
        return dx, d_alpha, d_shift, d_gamma, d_beta, *[None] * 7


def _sum_to(value: Tensor, parameter: Tensor) -> Tensor:
    return value.sum_to_size(parameter.shape).to(parameter.dtype)


def _guarded_moments(
    mean: Tensor, deviation: Tensor, k: float, group: str, lengths: list[int] | None = None
) -> GuardedMoments:
    """As ``ops.guarded_moments``, over all processes of a group. Opaque to a compiler: nobody sees how many rows."""
    if torch.compiler.is_compiling():
        return GuardedMoments(*torch.ops.geonorm.guarded_moments(mean, deviation, k, group))
    if not group:
        return guarded_moments(mean, deviation, k)
    (mean, deviation), here = gather_rows(group, mean, deviation, lengths=lengths)
    found = guarded_moments(mean, deviation, k)
    return found._replace(factor=found.factor[here])


torch.library.define(
    "geonorm::guarded_moments",
    "(Tensor mean, Tensor deviation, float k, str group)"
    " -> (Tensor center, Tensor factor, Tensor mean, Tensor var, Tensor samples)",
)


@torch.library.impl("geonorm::guarded_moments", ("cpu", "cuda", "mps", "xpu"))  # not meta: that is the fake's
def _guarded_moments_op(mean: Tensor, deviation: Tensor, k: float, group: str) -> tuple[Tensor, ...]:
    found = _guarded_moments(mean, deviation, k, group)
    return tuple(found._replace(factor=found.factor.clone()) if group else found)  # no view of all processes' factors


@torch.library.register_fake("geonorm::guarded_moments")  # type: ignore[untyped-decorator]
def _guarded_moments_fake(mean: Tensor, deviation: Tensor, k: float, group: str) -> tuple[Tensor, ...]:
    samples, channels = mean.shape
    center, pulled_mean, var = (mean.new_empty((channels,)) for _ in range(3))
    return center, mean.new_empty((samples,)), pulled_mean, var, mean.new_empty((), dtype=torch.float64)
