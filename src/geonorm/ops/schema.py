"""The registered operators: normalize, normalize_backward, center, and guarded_moments for graphs to be fused.

An operator is opaque to a compiler, so its implementation may read the data and run compiled kernels. It also chooses
the backend and falls back to torch. ``geonorm.functional`` defines the gradients. Forward and backward get the backend
that was requested when they were traced: if the request changes between them, backward still reads what forward wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import choose, problem
from .checks import check_exponent, check_values
from .precision import computing_dtype, wide_dtype
from .problem import Incoming, Saved

_DEVICES = ("cpu", "cuda", "mps", "xpu")  # not meta: the fake implementations serve it
_INPUTS = (
    "Tensor x, Tensor? phi, float phi_number, Tensor? alpha, float alpha_number, Tensor? shift, Tensor? gamma, "
    "Tensor? beta, Tensor? weight, Tensor? index, int[] dims, SymInt segments, str group, float[] rule, str backend"
)

torch.library.define("geonorm::normalize", f"({_INPUTS}) -> (Tensor output, Tensor groups, Tensor samples)")
torch.library.define(
    "geonorm::normalize_backward",
    f"(Tensor grad, Tensor? grad_center, Tensor? grad_spread, Tensor groups, Tensor? samples, bool[] needs, {_INPUTS})"
    " -> (Tensor x, Tensor phi, Tensor alpha, Tensor shift, Tensor gamma, Tensor beta, Tensor weight)",
)
torch.library.define(
    "geonorm::center",
    "(Tensor x, Tensor? phi, float phi_number, Tensor? weight, Tensor? index, int[] dims, SymInt segments, str group, "
    "int? sweeps)"
    " -> (Tensor center, Tensor bound, Tensor sweeps, Tensor lower, Tensor upper)",
)

torch.library.define(
    "geonorm::guarded_moments",
    "(Tensor mean, Tensor deviation, float k) -> (Tensor verdict, Tensor mean, Tensor var, Tensor samples)",
)


@torch.library.impl("geonorm::normalize", _DEVICES)
def _normalize(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    of, groups, rule = problem.from_arguments(*args)
    check_values(of.weight, groups, empty_ok=True)
    output, saved, _ = choose.normalize(of, groups, rule, name=args[-1])
    samples = saved.samples if saved.samples is not None else of.x.new_empty(0)
    return _like(output, of.x), saved.groups, samples


@torch.library.register_fake("geonorm::normalize")  # type: ignore[untyped-decorator]
def _normalize_fake(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    of, groups, rule = problem.from_arguments(*args)
    x, number = of.x, problem.number_of_groups(of.x.shape, groups)
    rows = x.new_empty((number, len(problem.COLUMNS)), dtype=wide_dtype(x.device))
    size, dtype = (0, x.dtype) if rule.guard is None else (problem.verdict_size(x), computing_dtype(x.dtype))
    return torch.empty_like(x), rows, x.new_empty((size,), dtype=dtype)


@torch.library.impl("geonorm::normalize_backward", _DEVICES)
def _normalize_backward(
    grad: Tensor,
    grad_center: Tensor | None,
    grad_spread: Tensor | None,
    rows: Tensor,
    samples: Tensor | None,
    needs: Sequence[bool],
    *args: Any,
) -> tuple[Tensor, ...]:
    of, groups, rule = problem.from_arguments(*args)
    incoming = Incoming(grad, grad_center, grad_spread)
    saved = Saved(rows, samples, backend=args[-1])
    found = choose.normalize_backward(incoming, of, groups, rule, saved, tuple(needs))
    parts = [of.x.new_empty(0) if part is None or not need else part for part, need in zip(found, needs, strict=True)]
    if needs[0]:
        parts[0] = _like(parts[0], of.x)
    return tuple([part.contiguous() if i else part for i, part in enumerate(parts)])


@torch.library.register_fake("geonorm::normalize_backward")  # type: ignore[untyped-decorator]
def _normalize_backward_fake(
    grad: Tensor, grad_center: Any, grad_spread: Any, rows: Tensor, samples: Any, needs: Sequence[bool], *args: Any
) -> tuple[Tensor, ...]:
    of, _, _ = problem.from_arguments(*args)
    parts = []
    for i, (value, need) in enumerate(zip(of, needs, strict=True)):
        if not need or not isinstance(value, Tensor):
            parts.append(of.x.new_empty(0))
        else:
            parts.append(torch.empty_like(value) if i == 0 else value.new_empty(value.shape))
    return tuple(parts)


@torch.library.impl("geonorm::center", _DEVICES)
def _center(
    x: Tensor,
    phi: Tensor | None,
    phi_number: float,
    weight: Tensor | None,
    index: Tensor | None,
    dims: Sequence[int],
    segments: int,
    group: str,
    sweeps: int | None,
) -> tuple[Tensor, ...]:
    groups = problem.grouping_from_args(index, dims, segments, group)
    check_values(weight, groups, empty_ok=True)
    if phi is not None and phi.is_cpu:
        check_exponent(phi)
    return tuple(choose.center(x, phi_number if phi is None else phi, weight, groups, sweeps))


@torch.library.register_fake("geonorm::center")  # type: ignore[untyped-decorator]
def _center_fake(
    x: Tensor,
    phi: Any,
    phi_number: float,
    weight: Any,
    index: Any,
    dims: Sequence[int],
    segments: int,
    group: str,
    sweeps: Any,
) -> tuple[Tensor, ...]:
    shape = problem.statistics_shape(x.shape, problem.grouping_from_args(index, dims, segments))
    wide, whole = x.new_empty(shape, dtype=wide_dtype(x.device)), x.new_empty(shape, dtype=torch.int64)
    return x.new_empty(shape), wide, whole, x.new_empty(shape), x.new_empty(shape)


@torch.library.impl("geonorm::guarded_moments", _DEVICES)
def _guarded_moments(mean: Tensor, deviation: Tensor, k: float) -> tuple[Tensor, ...]:
    verdict, *moments = choose.guarded_moments(mean, deviation, k)
    return verdict.to_numbers(), *moments


@torch.library.register_fake("geonorm::guarded_moments")  # type: ignore[untyped-decorator]
def _guarded_moments_fake(mean: Tensor, deviation: Tensor, k: float) -> tuple[Tensor, ...]:
    samples, channels = mean.shape
    numbers, total, var = (mean.new_empty((size,)) for size in (2 * (samples + channels) + 1, channels, channels))
    return numbers, total, var, mean.new_empty((), dtype=wide_dtype(mean.device))


def _one_by_one(operator: Any) -> Any:
    """A vmap rule that runs the entries one after another. Entries never share groups, whatever their layout."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        def entry(i: int) -> list[Any]:
            pairs = zip(args, in_dims, strict=True)
            return [arg.select(dim, i) if isinstance(arg, Tensor) and dim is not None else arg for arg, dim in pairs]

        parts = zip(*[operator(*entry(i)) for i in range(info.batch_size)], strict=True)
        outputs = tuple([torch.stack(part) for part in parts])
        return outputs, (0,) * len(outputs)

    return rule


def _like(value: Tensor, like: Tensor) -> Tensor:
    """The value with the strides that the fake implementation promises."""
    wanted = torch.empty_like(like)
    return value if value.stride() == wanted.stride() else wanted.copy_(value)


def _no_gradient(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "the operators of geonorm have no gradients; call the differentiable functions of geonorm.functional instead"
    )


@torch.library.register_vmap("geonorm::center")  # type: ignore[untyped-decorator]
def _center_vmap(
    info: Any,
    in_dims: tuple[Any, ...],
    x: Tensor,
    phi: Tensor | None,
    phi_number: float,
    weight: Tensor | None,
    index: Tensor | None,
    dims: Sequence[int],
    segments: int,
    group: str,
    sweeps: int | None,
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Groups are independent: the mapped dimension becomes one more kept dimension."""
    if in_dims[4] is not None:
        raise RuntimeError(
            "expected the same `batch` vector for all entries of a vmap (got one that is mapped over); "
            "offset the segment numbers and call segment_center once on the concatenated rows instead"
        )
    to = 0 if index is None else 1  # before all others, or after the rows
    rank = x.dim() - (in_dims[0] is not None)

    def placed(value: Tensor, dim: int | None) -> Tensor:
        value = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
        return value.reshape(value.shape[0], *[1] * (rank + 1 - value.dim()), *value.shape[1:]).movedim(0, to)

    values = placed(x, in_dims[0])
    values = values.expand(*values.shape[:to], info.batch_size, *values.shape[to + 1 :])
    phi = None if phi is None else placed(phi, in_dims[1])
    weight = None if weight is None else placed(weight, in_dims[3]).expand_as(values)
    kept = [d + 1 for d in dims] if index is None else list(dims)
    found = torch.ops.geonorm.center(values, phi, phi_number, weight, index, kept, segments, group, sweeps)
    return tuple(found), (to,) * len(found)


for _name in ("normalize", "normalize_backward", "guarded_moments"):
    torch.library.register_vmap(f"geonorm::{_name}", _one_by_one(getattr(torch.ops.geonorm, _name)))
for _name in ("normalize", "normalize_backward", "center", "guarded_moments"):
    torch.library.register_autograd(f"geonorm::{_name}", _no_gradient)
