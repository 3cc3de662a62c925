"""Argument checks shared by the functions of this package. Each error names the argument, what was expected, what came
and how to fix it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops.problem import broadcasts


def floating(x: Tensor) -> Tensor:
    """x in the dtype that statistics are computed in: float32 for half precision."""
    check_floating(x)
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def check_floating(x: Tensor) -> None:
    """Raise unless x is a tensor of real floating-point numbers."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected x to be a torch.Tensor (got {type(x).__name__}); wrap it in torch.as_tensor")
    if x.is_nested:
        raise TypeError(
            "expected x to be a plain tensor (got a nested one); pad it and mask the padding, x.to_padded_tensor(0.0); "
            "AugLayerNorm takes jagged ones"
        )
    if not x.is_floating_point():
        cure = "pass its real and imaginary parts separately" if x.is_complex() else "convert it first: x.float()"
        raise TypeError(f"expected x to have a floating-point dtype (got {x.dtype}); {cure}")


def reduced_dims(x: Tensor, dim: int | Sequence[int] | None, empty_ok: bool = False) -> tuple[int, ...]:
    """``dim`` as sorted non-negative axes of x. Raises if one is empty, unless ``empty_ok``."""
    if dim is None:
        dims = tuple(range(x.dim()))
    else:
        given = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        if any(isinstance(d, bool) or not isinstance(d, int) for d in given):
            raise TypeError(f"expected dim to be an int, a tuple of ints or None (got {dim!r})")
        if not x.dim() and given in ((0,), (-1,)):  # as torch: a number has one dimension when one is named
            return ()
        if not given:
            raise ValueError("expected dim to name at least one dimension (got ()); pass dim=None to reduce all")
        for d in given:
            if not -x.dim() <= d < x.dim():
                raise IndexError(
                    f"expected dim in [{-x.dim()}, {x.dim() - 1}] for x with {x.dim()} dimensions (got {d})"
                )
        dims = tuple(sorted(d % x.dim() for d in given))
        if len(set(dims)) < len(dims):
            raise ValueError(f"expected each dimension once in dim (got {given})")
    if not empty_ok and any(x.shape[d] == 0 for d in dims):
        raise ValueError(
            f"expected at least one value to reduce (got x of shape {tuple(x.shape)} reduced over dim {dims}); "
            "an empty group has no center"
        )
    return dims


def broadcastable(value: Tensor, x: Tensor, name: str) -> None:
    """Raise unless a parameter broadcasts to x."""
    if not broadcasts(value.shape, x.shape):
        raise ValueError(
            f"expected {name} to broadcast to x of shape {tuple(x.shape)} (got shape {tuple(value.shape)}); "
            "give it dimensions of size 1 where it is shared, such as (1, channels, 1, 1)"
        )


def exponent(phi: float | Tensor) -> float | Tensor:
    """φ as a float or a floating tensor. The values of a tensor are checked where the center is computed."""
    if isinstance(phi, Tensor):
        if not phi.is_floating_point():
            raise TypeError(
                f"expected phi to be a float or a floating-point tensor (got dtype {phi.dtype}); "
                "convert it: phi.float()"
            )
        return phi
    if isinstance(phi, bool) or not isinstance(phi, (int, float)):
        raise TypeError(f"expected phi to be a float or a floating-point tensor (got {type(phi).__name__})")
    if not phi >= 1:
        raise ValueError(
            f"expected phi >= 1 (got {phi}): below 1 the sum of |x - y|^phi is not convex and has no unique "
            "minimum; use phi=1 for the median, 2 for the mean, math.inf for the midrange"
        )
    return float(phi)


def renamed_weight(element_weight: Tensor | None, weight: Tensor | None) -> Tensor | None:
    """``element_weight``, which may still be given by its old name."""
    if weight is None:
        return element_weight
    if element_weight is not None:
        raise TypeError("expected element_weight alone (got weight too, which is its old name)")
    warnings.warn("weight= is now element_weight=; weight= will be removed in 0.3", DeprecationWarning, stacklevel=3)
    return weight


def renamed_interior(phi_strictly_inside: bool, interior: bool | None) -> bool:
    """``phi_strictly_inside``, which may still be given by its old name."""
    if interior is None:
        return phi_strictly_inside
    message = "interior= is now phi_strictly_inside=; interior= will be removed in 0.3"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return interior


def weights(weight: Tensor | None, x: Tensor, name: str = "element_weight") -> Tensor | None:
    """Weights or a mask as floats of x's shape. Their values are checked where the center is computed."""
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or weight.is_complex():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"expected {name} to be a real or boolean tensor (got {kind})")
    if not broadcasts(weight.shape, x.shape):
        raise ValueError(
            f"expected {name} to broadcast to x of shape {tuple(x.shape)} (got shape {tuple(weight.shape)}); "
            "add dimensions of size 1 where it is shared"
        )
    if not weight.is_floating_point():  # counts may need more digits than x has
        weight = weight.to(x.dtype if weight.dtype == torch.bool else torch.float64)
    elif weight.dtype not in (torch.float32, torch.float64):
        weight = weight.to(x.dtype)
    return weight.expand_as(x)


def segments(x: Tensor, batch: Tensor, batch_size: int | None) -> int:
    """The number of segments, after the checks of ``batch`` that do not need its values."""
    if not isinstance(batch, Tensor) or batch.dtype != torch.int64:
        kind = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(
            f"expected batch to be an int64 tensor of segment numbers (got {kind}); convert it: batch.long()"
        )
    if x.dim() < 1 or batch.dim() != 1 or len(batch) != len(x):
        raise ValueError(
            f"expected batch to have one entry per row of x, shape ({len(x) if x.dim() else '?'},) "
            f"(got shape {tuple(batch.shape)} for x of shape {tuple(x.shape)})"
        )
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, (int, torch.SymInt))):
        raise TypeError(f"expected batch_size to be an int (got {type(batch_size).__name__})")
    if batch_size is None:
        if torch.compiler.is_compiling():
            raise ValueError(
                "expected batch_size under torch.compile (got None): the number of segments would depend on the data; "
                "pass batch_size=..."
            )
        return int(batch.max()) + 1 if len(batch) else 0
    if batch_size < 0:
        raise ValueError(f"expected batch_size >= 0 (got {batch_size})")
    return batch_size


def about_point(about: float | Tensor | None) -> float | Tensor:
    """The point that deviations are measured from."""
    if about is None:
        return 0.0
    if isinstance(about, Tensor):
        if about.is_complex():
            raise TypeError(f"expected about to be real (got {about.dtype})")
        return about
    if isinstance(about, bool) or not isinstance(about, (int, float)):
        raise TypeError(f"expected about to be a number or a tensor (got {type(about).__name__}); use torch.as_tensor")
    return about


def check_floor(floor: float, name: str = "floor", of: str = "mean deviation") -> None:
    """Raise unless a floor is a valid fraction of some deviation."""
    if not 0 <= floor < math.inf:
        raise ValueError(f"expected {name} >= 0, a fraction of the {of} (got {floor}); 0 turns it off")


def spread_power(kind: str | float, name: str = "kind") -> float | None:
    """The exponent of a spread; None for the robust one. ``name``: what the caller's argument is called."""
    names = {"rms": 2.0, "mean_abs": 1.0, "max_abs": math.inf}
    if isinstance(kind, str):
        if kind == "robust":
            return None
        if kind not in names:
            raise ValueError(
                f"expected {name} to be one of {[*names, 'robust']} or an exponent in [1, inf] (got {kind!r})"
            )
        return names[kind]
    if isinstance(kind, bool) or not isinstance(kind, (int, float)):
        raise TypeError(
            f"expected {name} to be a name or a number (got {type(kind).__name__}); names are {[*names, 'robust']}"
        )
    if not kind >= 1:
        raise ValueError(f"expected an exponent {name} >= 1 (got {kind}); names are {[*names, 'robust']}")
    return float(kind)
