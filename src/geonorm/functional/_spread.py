"""How far a group of values lies from a point: power means of the distance, and a robust one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..ops import Axes, Grouping, Rule, check_values
from ..ops.problem import grouping_from_args, grouping_to_args, per_group
from ..ops.torch.gaussian import robust_factor
from ..ops.torch.spread import mean_abs_factor, power_mean
from ._arguments import about_point, check_floor, floating, reduced_dims, renamed_weight, spread_power, weights
from ._implicit import center_in_groups

_LARGEST_ROBUST_PHI = 100.0


def spread(
    x: Tensor,
    kind: str | float = "rms",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    about: float | Tensor | None = None,
    element_weight: Tensor | None = None,
    phi: float = 1.5,
    floor: float = 0.05,
    weight: Tensor | None = None,
) -> Tensor:
    """The size of the deviations z = x − a from a point a, one number per group.

        s(z) = (Σ ω_i |z_i|^q / Σ ω_i)^(1/q)                     power mean
        s(z) = max(k_φ · c_φ(|z|), f · √(π/2) · mean|z|)         robust; c_φ is the center

    The robust spread is the L^φ center of the deviations, scaled so that normal data give their standard deviation.
    It is much less sensitive to outliers than rms, never immune: one outlier A among m values adds about A/m² at
    φ=1.5, A/√m to the rms. Where more than half of the deviations are 0 it would collapse; the floor f keeps it
    above a fraction of the mean deviation.

    Every kind is exact for values of any magnitude. A group of zeros has the spread 0 and no gradient. Half
    precision is computed in float32.

    Args:
        x: values, of a floating-point dtype.
        kind: ``"rms"`` (q=2), ``"mean_abs"`` (q=1), ``"max_abs"`` (q=∞), an exponent q in [1, ∞], or ``"robust"``.
        dim: dimension or dimensions to reduce; all by default.
        keepdim: keep the reduced dimensions with size 1.
        about: the point a, a number or a tensor that broadcasts over the kept dimensions; 0 by default.
        element_weight: non-negative weights or a mask that broadcasts to ``x``; entries with weight 0 are ignored.
            A group in which all are 0 raises, or gives 0 where the weights cannot be read, as in ``center``.
        phi: the exponent of the robust spread, from 1 (median absolute deviation) to 100.
        floor: f of the robust spread; 0 turns it off.
        weight: the old name of ``element_weight``, until 0.3.

    Shape:
        - x: any; output: the kept dimensions, or all with the reduced ones of size 1.

    Examples:

        >>> import torch
        >>> from geonorm.functional import spread
        >>> x = torch.cat([torch.linspace(-2, 2, 99), torch.tensor([1000.0])])
        >>> [round(spread(x, kind).item(), 1) for kind in ("rms", "mean_abs", "max_abs", "robust")]
        [100.0, 11.0, 1000.0, 1.8]
    """
    values = floating(x)
    dims = reduced_dims(values, dim)
    full_weight = weights(renamed_weight(element_weight, weight), values)
    check_floor(floor)
    point = about_point(about)
    if isinstance(point, Tensor):
        point = per_group(point, values.shape, dims, "about").to(values.dtype)
    values = values if about is None else values - point
    if not x.dim():
        values, dims = values.reshape(1), (0,)
        full_weight = None if full_weight is None else full_weight.reshape(1)
    result = spread_of(values, kind, full_weight, Axes(dims), phi, floor).to(x.dtype)
    return result if keepdim and x.dim() else result.reshape([n for d, n in enumerate(x.shape) if d not in dims])


def spread_of(
    z: Tensor, kind: str | float, weight: Tensor | None, groups: Grouping, phi: float, floor: float
) -> Tensor:
    """The spread of the deviations z of every group. Statistics keep the reduced axes with size 1."""
    check_values(weight, groups)
    power = spread_power(kind)
    rule = Rule(
        power, spread_phi=phi if power is not None else robust_exponent(phi), spread_floor=floor, centered=False
    )
    if (found := ops.spread(z, weight, groups, rule)) is None:
        return _differentiable_spread(z, weight, groups, rule)
    if not (torch.is_grad_enabled() and z.requires_grad):
        return found
    index, *rest = grouping_to_args(groups)
    result: Tensor = _KnownSpread.apply(z, index, (found, rest, rule))  # type: ignore[no-untyped-call]
    return result


def _differentiable_spread(z: Tensor, weight: Tensor | None, groups: Grouping, rule: Rule) -> Tensor:
    """The spread in plain operations, which autograd differentiates."""
    if weight is not None:  # where() instead of a product: ignored entries may be NaN
        z = torch.where(weight > 0, z, 0.0)
    if rule.power is not None:
        return power_mean(z, rule.power, weight, groups)
    result = robust_factor(rule.spread_phi) * center_in_groups(z.abs(), rule.spread_phi, weight, groups).center
    if rule.spread_floor:
        result = torch.maximum(result, rule.spread_floor * mean_abs_factor() * power_mean(z, 1.0, weight, groups))
    return result


class _KnownSpread(torch.autograd.Function):
    """A spread computed by the kernels. Backward repeats it in plain operations and differentiates those."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, index: Tensor | None, known: tuple[Tensor, list[Any], Rule]) -> Tensor:
        found, ctx.groups, ctx.rule = known
        ctx.save_for_backward(z, index)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, index = ctx.saved_tensors
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            z = z.view_as(z) if keep else z.detach().requires_grad_()
            spread = _differentiable_spread(z, None, grouping_from_args(index, *ctx.groups), ctx.rule)
            return *torch.autograd.grad(spread, z, grad, create_graph=keep), None, None


def robust_exponent(phi: float, name: str = "phi") -> float:
    """The exponent of the robust spread, checked. ``name``: what the caller's argument is called."""
    if isinstance(phi, bool) or not isinstance(phi, (int, float)) or not 1 <= phi <= _LARGEST_ROBUST_PHI:
        raise ValueError(
            f"expected {name}, the exponent of the robust spread, to be a number in [1, {_LARGEST_ROBUST_PHI:g}] "
            f"(got {phi}); it is not learned, and a larger one is not robust"
        )
    return float(phi)
