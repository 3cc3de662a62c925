"""POP-Norm as a pure function: normalize before the operation, with the shift inside and a divisor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..distributed import Group
from ..ops import Axes, Inputs, check_values
from ..ops.problem import per_group
from ._arguments import broadcastable, check_floating, exponent, floating, reduced_dims, renamed_interior, weights
from ._aug import AugNorm, joint_groups
from ._center import check_sweeps
from ._normalize import make_rule, normalize

SHIFTS = ("add", "mul")
ORDERS = ("center_first", "scale_first")


def pop_norm(
    x: Tensor,
    dim: int | Sequence[int] | None = None,
    phi: float | Tensor = 2.0,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    kappa: float = 4.0,
    eps: float = 1e-5,
    spread: str | float = "rms",
    center: bool = True,
    scale: bool = True,
    shift: str = "add",
    order: str = "center_first",
    spread_phi: float = 1.5,
    spread_floor: float = 0.05,
    grad_floor: float = 0.0,
    sweeps: int | None = None,
    phi_strictly_inside: bool = False,
    element_weight: Tensor | None = None,
    process_group: Group | None = None,
    interior: bool | None = None,
) -> AugNorm:
    """Normalize each group of values as POP-Norm does: shift, then divide.

        z = x − c(x) + bias         (shift="add")        y = (weight / kappa) · z / √(s(z)² + eps)
        z = x − (1 + bias)·c(x)     (shift="mul")

    With ``order="scale_first"`` the values are divided by their own spread s(x) before they are centered:
    y = (weight / kappa) · ((x − c(x)) / √(s(x)² + eps) + bias), or with ``shift="mul"``
    y = (weight / kappa) · (x − (1 + bias)·c(x)) / √(s(x)² + eps). Without ``center`` only the division is left, without
    a bias; without ``scale`` only the centering, y = x − c(x) + bias, without weight and kappa.

    Args:
        x: values, of a floating-point dtype.
        dim: dimension or dimensions that form a group; all by default.
        phi: exponent of the center; 2, the mean, is what POP-Norm uses.
        weight: γ, broadcasts to ``x``.
        bias: β, the shift, broadcasts to ``x``.
        kappa: the divisor κ.
        eps: added to the square of the spread.
        spread: a kind of ``spread``.
        center: whether to subtract the center.
        scale: whether to divide by the spread.
        shift: ``"add"`` or ``"mul"``.
        order: ``"center_first"`` or ``"scale_first"``.
        spread_phi, spread_floor, grad_floor, sweeps, phi_strictly_inside, element_weight, process_group: see
            ``aug_norm``.
        interior: the old name of ``phi_strictly_inside``, until 0.3.

    Shape:
        - x: any; output: the same; statistics: the shape of ``x`` with the reduced dimensions of size 1.

    Examples:
        >>> import torch
        >>> from geonorm.functional import pop_norm, spread
        >>> y, _ = pop_norm(torch.randn(64, 10), 0, kappa=4.0, bias=torch.full((1, 10), 0.3), eps=0.0)
        >>> torch.allclose(spread(y, "rms", 0), torch.full((10,), 0.25))
        True
    """
    check_floating(x)
    groups = joint_groups(x, dim, process_group) if process_group is not None else Axes(reduced_dims(x, dim))
    power = exponent(phi)
    if isinstance(power, Tensor):
        power = per_group(power, x.shape, groups.dims, "phi")
    check_sweeps(sweeps)
    check_choices(kappa, shift, order)
    full_weight = None if element_weight is None else weights(element_weight, floating(x))
    check_values(full_weight, groups)
    for name, value in (("weight", weight), ("bias", bias)):
        if isinstance(value, Tensor):
            broadcastable(value, x, name)
    rule = make_rule(
        spread,
        spread_phi,
        spread_floor,
        grad_floor,
        eps,
        sweeps,
        renamed_interior(phi_strictly_inside, interior),
        centered=center,
        scaled=scale,
        scale_first=order == "scale_first",
    )
    alpha, inside, gamma, outside = pop_parameters(x, weight, bias, kappa, center, scale, shift, order)
    output, statistics = normalize(Inputs(x, power, alpha, inside, gamma, outside, full_weight), groups, rule)
    assert statistics is not None
    return AugNorm(output, statistics)


def pop_parameters(
    like: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    kappa: float,
    center: bool,
    scale: bool,
    shift: str,
    order: str,
) -> tuple[float | Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """POP-Norm's parameters as those of the general normalization: α, the inner shift, γ, and the outer shift.

    ``like``: the values to normalize; without a weight, γ = 1/κ takes device and computing dtype from them.
    """
    gamma = None
    if scale:
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        gamma = (torch.ones((), dtype=dtype, device=like.device) if weight is None else weight) / kappa
    if not center or bias is None:
        return 1.0, None, gamma, None
    if shift == "mul":
        return 1 + bias, None, gamma, None
    if order == "scale_first" and gamma is not None:
        return 1.0, None, gamma, bias * gamma
    return 1.0, bias, gamma, None


def check_choices(kappa: float, shift: str, order: str) -> None:
    """Raise unless POP-Norm's own options are valid: a positive divisor, and two names."""
    if not 0 < kappa < math.inf:
        raise ValueError(f"expected kappa > 0, the divisor (got {kappa}); kappa=1 does not divide the output")
    if shift not in SHIFTS:
        raise ValueError(f"expected shift to be one of {SHIFTS} (got {shift!r})")
    if order not in ORDERS:
        raise ValueError(f"expected order to be one of {ORDERS} (got {order!r})")
