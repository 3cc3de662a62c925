"""The L^φ center of a group of values, argmin_y Σ|x_i − y|^φ: the median at φ = 1, the mean at 2, the midrange at ∞."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..ops import Axes, check_values, may_call_directly
from ..ops.problem import per_group
from ._arguments import exponent, floating, reduced_dims, renamed_weight, weights
from ._implicit import center_in_groups


class CenterInfo(NamedTuple):
    """A center with its certificate.

    Attributes:
        center: the center, as ``center`` returns it.
        bound: float64; the true minimizer lies within this distance of the center, rounding included.
        sweeps: int64; number of passes of the solver over the data; 0 where the center has a closed form.
    """

    center: Tensor
    bound: Tensor
    sweeps: Tensor


def center(
    x: Tensor,
    phi: float | Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    element_weight: Tensor | None = None,
    sweeps: int | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The generalized geometric median: the point with the least sum of distances to the power φ.

        c(x) = argmin over y of Σ ω_i |x_i − y|^φ

    It is the median at φ=1 (the midpoint of the two middle values), the mean at 2, the midrange at ``math.inf``,
    and moves smoothly through robust (φ<2) and extreme-seeking (φ>2) centers in between. It is computed to a certified
    error for every input; ``center_with_info`` returns the certificate. Differentiable in ``x``, ``phi`` and
    ``element_weight``; twice for 1 < φ < ∞ where no value equals the center. Half precision is computed in float32.

    A group that holds NaN has the center NaN, and so has one that holds ±Inf unless φ is 1 or ∞; other groups are
    not affected. A group whose weights are all 0 has no center and raises. Where the weights cannot be read, in a
    compiled graph or under ``vmap``, it gives 0 and no gradient.

    Args:
        x: values, of a floating-point dtype.
        phi: exponent in [1, ∞], a number or a tensor that broadcasts over the kept dimensions.
        dim: dimension or dimensions to reduce; all by default.
        keepdim: keep the reduced dimensions with size 1.
        element_weight: non-negative weights that broadcast to ``x`` (frequencies: 2 counts as the value twice).
            Entries with weight 0 are ignored, whatever they hold, so a boolean mask works.
        sweeps: exactly this many sweeps of the solver instead of the adaptive stop; 3 or 4 for φ ≥ 1.5. Inside
            ``torch.compile`` the compiler then sees plain operations that it can fuse; without it the center is one
            opaque operator, which compiles as well and gives the same numbers as outside.
        weight: the old name of ``element_weight``, until 0.3.

    Shape:
        - x: any; output: the kept dimensions, or all with the reduced ones of size 1.

    Examples:

        >>> import math, torch
        >>> from geonorm.functional import center
        >>> x = torch.tensor([0.0, 1.0, 2.0, 100.0])
        >>> [round(center(x, phi).item(), 2) for phi in (1, 1.5, 2, math.inf)]
        [1.5, 10.92, 25.75, 50.0]
    """
    element_weight = renamed_weight(element_weight, weight)
    if element_weight is None and not isinstance(phi, Tensor) and phi == 2 and may_call_directly(x):
        values = floating(x)
        mean = values.mean(reduced_dims(values, dim), keepdim).to(x.dtype)
        finite = mean.isfinite()
        if mean.is_cpu and bool(finite.all()):
            return mean
        # The sum may have overflowed; the solver does not.
        return torch.where(finite, mean, center_with_info(x, phi, dim, keepdim).center)
    return center_with_info(x, phi, dim, keepdim, element_weight=element_weight, sweeps=sweeps).center


def center_with_info(
    x: Tensor,
    phi: float | Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    element_weight: Tensor | None = None,
    sweeps: int | None = None,
    weight: Tensor | None = None,
) -> CenterInfo:
    """``center``, with the bound on its error and the number of sweeps it took.

    Args:
        x, phi, dim, keepdim, element_weight, sweeps, weight: as in ``center``.

    Shape:
        - all three results: the shape of ``center``'s output.

    Examples:

        >>> import torch
        >>> from geonorm.functional import center_with_info
        >>> info = center_with_info(torch.tensor([0.0, 1.0, 2.0, 100.0]), 1.5)
        >>> bool(info.bound < 1e-4), int(info.sweeps) < 10
        (True, True)
    """
    values = floating(x)
    dims = reduced_dims(values, dim)
    power = exponent(phi)
    if isinstance(power, Tensor):
        power = per_group(power, values.shape, dims, "phi")
    check_sweeps(sweeps)
    full_weight = weights(renamed_weight(element_weight, weight), values)
    if not values.dim():
        values, dims = values.reshape(1), (0,)
        full_weight = None if full_weight is None else full_weight.reshape(1)
    groups = Axes(dims)
    check_values(full_weight, groups)
    found = center_in_groups(values, power, full_weight, groups, sweeps)
    mu, bound, used = (value if keepdim and x.dim() else _drop(value, dims) for value in found[:3])
    if x.dtype != values.dtype:
        rounded = mu.to(x.dtype)
        mu, bound = rounded, bound + (rounded.detach().double() - mu.detach().double()).abs()
    return CenterInfo(mu, bound, used)


def check_sweeps(sweeps: int | None) -> None:
    """Raise unless ``sweeps`` is a positive integer or None."""
    if sweeps is not None and (isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1):
        raise ValueError(f"expected sweeps to be a positive integer, or None for the adaptive stop (got {sweeps!r})")


def _drop(value: Tensor, dims: tuple[int, ...]) -> Tensor:
    for d in reversed(dims):
        value = value.squeeze(d)
    return value
