"""Every backend, layout, dtype and option against one oracle in float64, forward and backward.

The oracle shares no code with the library: centers by bisection in extended precision, made differentiable by one step
of Newton's method from there (whose value is the center again and whose derivative is that of the implicit function),
everything else as the formulas say, and gradients by autograd. ``choose`` is called directly and by the operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Grouping, Incoming, Inputs, Rule, Saved, Segments, choose, cpu, problem, using_backend
from geonorm.ops.cpu import library
from geonorm.ops.torch import normalize as on_torch
from helpers.oracles import center_by_bisection, guard_by_formulas
from helpers.slow_cases import slow_except

needs_kernels = pytest.mark.skipif(isinstance(library.load(), str), reason="the kernels are not built")
BACKENDS = [pytest.param("native", marks=needs_kernels), "torch"]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INDEX = torch.tensor([0] * 9 + [2] * 7 + [3] * 12)  # the segments 1 and 4 have no rows
MIXED = INDEX[torch.randperm(len(INDEX), generator=torch.Generator().manual_seed(0))]


# What is normalized.


@dataclass(frozen=True)
class Layout:
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    parameters: tuple[int, ...]
    phi: tuple[int, ...]
    memory: str = "contiguous"
    segments: bool = False
    on_kernels: bool = True

    def groups(self) -> Grouping:
        if self.segments:
            return Segments(INDEX if self.on_kernels else MIXED, 5)
        return Axes(self.dims)

    def can_be_guarded(self) -> bool:
        return not self.segments and self.dims == (0, *range(2, len(self.shape)))


LAYOUTS = {
    "NC": Layout((23, 5), (0,), (5,), (5,)),
    "NCHW": Layout((5, 4, 3, 2), (0, 2, 3), (4, 1, 1), (1, 4, 1, 1)),
    "channels_last": Layout((5, 4, 3, 2), (0, 2, 3), (1, 4, 1, 1), (4,), "channels_last"),
    "NCL": Layout((6, 3, 7), (0, 2), (1, 3, 1), (3,)),
    "layer": Layout((4, 19), (1,), (19,), ()),
    "group": Layout((3, 2, 2, 3, 3), (2, 3, 4), (1, 2, 2, 1, 1), (2,)),
    "instance": Layout((3, 4, 3, 5), (2, 3), (4, 1, 1), (4,)),
    "instance, channels_last": Layout((3, 4, 3, 5), (2, 3), (4, 1, 1), (3, 4), "channels_last"),
    "segments": Layout((28, 4), (), (4,), (4,), segments=True),
    "unsorted segments": Layout((28, 4), (), (4,), (5, 4), segments=True, on_kernels=False),
    "strided": Layout((23, 5), (0,), (5,), (5,), "strided"),
    "transposed": Layout((23, 5), (0,), (5,), (), "transposed"),
    "permuted": Layout((7, 3, 6), (0, 2), (3, 1), (1, 3, 1), "transposed"),
}


@dataclass(frozen=True)
class Option:
    """A case: which tensors there are, and the rule. ``on_kernels``: they take it."""

    phi: float | str = 1.5  # "tensor", "learned"
    alpha: float | str = 1.0
    tensors: str = "gamma beta"
    rule: dict[str, Any] = field(default_factory=dict)
    on_kernels: bool = True
    by_statistics: bool = False  # center and spread have gradients too

    def __hash__(self) -> int:
        return hash(str(self))


OPTIONS = {
    **{f"φ={phi:g}": Option(phi) for phi in (1.0, 1.3, 1.5, 2.0, 3.0, math.inf)},
    "φ=8": Option(8.0, on_kernels=False),
    "φ tensor": Option("tensor"),
    "φ learned": Option("learned", rule={"learned": (1.05, 3.2, -0.3), "phi_strictly_inside": True}),
    "mean_abs": Option(rule={"power": 1.0}),
    "max_abs": Option(rule={"power": math.inf}),
    "robust": Option(rule={"power": None}),
    "robust, ψ=2.5": Option(1.3, rule={"power": None, "spread_phi": 2.5, "spread_floor": 0.0}),
    "robust, floored": Option(rule={"power": None, "spread_floor": 2.0}),
    "power 3": Option(rule={"power": 3.0}, on_kernels=False),
    "α=0.7": Option(2.0, 0.7),
    "α": Option(1.5, "tensor"),
    "α at φ=2": Option(2.0, "tensor", "shift gamma beta"),
    "shift": Option(tensors="shift gamma beta"),
    "γ alone": Option(tensors="gamma"),
    "β alone": Option(tensors="beta"),
    "bare": Option(tensors=""),
    "all": Option("tensor", "tensor", "shift gamma beta", {"power": None}),
    "not centered": Option(tensors="shift gamma", rule={"centered": False}),
    "not scaled": Option("tensor", "tensor", rule={"scaled": False}),
    "scale first": Option(rule={"scale_first": True}, on_kernels=False),
    "large ε": Option(rule={"eps": 0.5}),
    "grad_floor": Option(1.3, rule={"grad_floor": 0.3}),
    "sweeps": Option(rule={"sweeps": 24}, on_kernels=False),
    "weight": Option("tensor", tensors="gamma beta weight", on_kernels=False),
    "weight at φ=2": Option(2.0, "tensor", "shift gamma beta weight", on_kernels=False),
    "weight, robust": Option(tensors="gamma weight", rule={"power": None}, on_kernels=False),
    "statistics": Option("tensor", "tensor", by_statistics=True),
    "statistics, φ=2": Option(2.0, by_statistics=True),
    "statistics, robust": Option(rule={"power": None}, by_statistics=True),
    "statistics, robust, ψ=2.5": Option(rule={"power": None, "spread_phi": 2.5}, by_statistics=True),
    "guard, φ=2": Option(2.0, rule={"guard": 2.0}),
    "guard, φ=1.5": Option(rule={"guard": 2.0}),
    "guard, robust": Option("tensor", "tensor", "shift gamma beta", {"guard": 1.5, "power": None}),
    "guard, learned": Option("learned", rule={"guard": 2.0, "learned": (1.05, 3.2, -0.3), "phi_strictly_inside": True}),
    "guard, statistics, φ=2": Option(2.0, rule={"guard": 2.0}, by_statistics=True),
    "guard, statistics": Option(rule={"guard": 2.0}, by_statistics=True),
}
QUICK = {"NC", "channels_last", "segments"}  # layouts on which every option is tried
CORE = {"φ=1", "φ=1.5", "φ=2", "robust", "all", "guard, φ=1.5", "statistics"}  # options that every layout is tried with


def computing(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def values_of(layout: Layout, dtype: torch.dtype, far: bool) -> Tensor:
    """No two equal values along any dimension, of any dtype: where there are ties a gradient is a convention.

    Multiples of 1/16 below 16 are numbers of bfloat16. The wide dtypes get digits behind.
    """
    generator = torch.Generator().manual_seed(3)
    count = math.prod(layout.shape)
    x = torch.empty(count, dtype=torch.float64)
    for start in range(0, count, 250):
        part = torch.randperm(250, generator=generator)[: count - start]
        x[start : start + 250] = (part - 90) / 16
    if dtype in (torch.float32, torch.float64):
        x += torch.rand(count, generator=generator, dtype=torch.float64) / 40
    x = x.reshape(layout.shape)
    if far:
        x[1] *= 16
    x = x.to(dtype)
    if layout.memory == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout.memory == "strided":
        return torch.stack([x, x], -1)[..., 0]
    if layout.memory == "transposed":
        order = range(x.dim() - 1, -1, -1)
        return x.permute(*order).contiguous().permute(*order)
    return x


def case(layout_name: str, option_name: str, dtype: torch.dtype) -> tuple[Inputs, Grouping, Rule]:
    layout, option = LAYOUTS[layout_name], OPTIONS[option_name]
    generator, wide = torch.Generator().manual_seed(5), computing(dtype)

    def parameter(about: float, *shape: int) -> Tensor:
        return (about + 0.4 * torch.rand(shape, generator=generator, dtype=torch.float64)).to(wide)

    phi: float | Tensor
    if isinstance(option.phi, str):
        learned = option.phi == "learned"
        phi = parameter(0.1, *layout.phi) if learned else 1.3 + 3 * (parameter(0.0, *layout.phi))
    else:
        phi = option.phi
    alpha = parameter(0.7, *layout.parameters) if option.alpha == "tensor" else float(option.alpha)
    shift, gamma, beta = (
        parameter(about, *layout.parameters) if name in option.tensors else None
        for name, about in (("shift", -0.3), ("gamma", 0.8), ("beta", -0.1))
    )
    x = values_of(layout, dtype, far="guard" in option.rule)
    weight = None
    if "weight" in option.tensors:
        weight = torch.rand(layout.shape, generator=generator, dtype=torch.float64).add(0.3).to(wide)
        weight[torch.rand(layout.shape, generator=generator) < 0.2] = 0.0
    return Inputs(x, phi, alpha, shift, gamma, beta, weight), layout.groups(), Rule(**option.rule)


def incoming(of: Inputs, groups: Grouping, option: Option) -> Incoming:
    generator = torch.Generator().manual_seed(7)
    grad = torch.randn(of.x.shape, generator=generator, dtype=torch.float64).to(of.x.dtype)
    if not option.by_statistics:
        return Incoming(grad)
    shape = problem.statistics_shape(of.x.shape, groups)
    by_center, by_spread = (torch.randn(shape, generator=generator).to(computing(of.x.dtype)) for _ in range(2))
    return Incoming(grad, by_center, by_spread)


# The oracle, on groups as rows.


@lru_cache
def robust_factor(psi: float) -> float:
    """What makes the robust spread of normal data their standard deviation: 1 over the center of |N(0, 1)|."""

    def force(c: Any) -> Any:
        def density(t: Any) -> Any:
            return mpmath.sign(t - c) * abs(t - c) ** (psi - 1) * mpmath.exp(-t * t / 2)

        return mpmath.quad(density, [0, c, c + 1, c + 4, 14])

    return float(1 / mpmath.findroot(force, (0.5, 1.0), tol=1e-14))


def center_of(x: Tensor, phi: float | Tensor, weight: Tensor, nudge: float, floor: Tensor | None = None) -> Tensor:
    """The center of each row; differentiable. ``nudge``: the gradient is that of a center so far off."""
    if isinstance(phi, float) and phi == 1:
        ordered = x.sort(1).values
        return 0.5 * (ordered[:, [(x.shape[1] - 1) // 2]] + ordered[:, [x.shape[1] // 2]])
    if isinstance(phi, float) and phi == math.inf:
        return 0.5 * (x.amin(1, keepdim=True) + x.amax(1, keepdim=True))
    if isinstance(phi, float) and phi == 2:
        return (x * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
    exponent = phi.detach().numpy() if isinstance(phi, Tensor) else phi
    found = center_by_bisection(x.detach().numpy(), exponent, weight.detach().numpy(), steps=90)
    c = torch.from_numpy(found.astype(np.float64)) + nudge
    r = x - c
    # Where a value does not count it may lie on the center, and 0 to a power has no derivative.
    a = torch.where(weight > 0, r.abs(), 1.0)
    if floor is not None:  # not followed below the floor: another weight in the gradient, and the value of the center
        share = torch.maximum(a.detach(), floor.detach()) ** (phi - 2)
        return c + (share / share.sum(1, keepdim=True) * (x - x.detach())).sum(1, keepdim=True)
    force = (weight * r.sign() * a ** (phi - 1)).sum(1, keepdim=True)
    slope = ((phi - 1) * weight * a ** (phi - 2)).sum(1, keepdim=True)
    return c + force / slope.detach()


def spread_of(z: Tensor, rule: Rule, weight: Tensor, nudge: float) -> Tensor:
    mass = weight.sum(1, keepdim=True)
    size = torch.where(weight > 0, z, 0.0).abs()
    if rule.power is not None:
        if rule.power == math.inf:
            return size.amax(1, keepdim=True)
        return ((weight * size**rule.power).sum(1, keepdim=True) / mass) ** (1 / rule.power)
    spread = robust_factor(rule.spread_phi) * center_of(size, rule.spread_phi, weight, nudge)
    least = rule.spread_floor * math.sqrt(math.pi / 2) * (weight * size).sum(1, keepdim=True) / mass
    return torch.maximum(spread, least)


def normalize_rows(
    x: Tensor,
    phi: float | Tensor,
    alpha: Tensor,
    shift: Tensor,
    gamma: Tensor,
    beta: Tensor,
    weight: Tensor,
    rule: Rule,
    nudge: float,
) -> tuple[Tensor, ...]:
    """Output, center, spread, mean, variance and mass of rows. All but φ, one per row, have x's shape."""
    mass = weight.sum(1, keepdim=True)
    mean = (weight * x).sum(1, keepdim=True) / mass
    var = (weight * (x - mean) ** 2).sum(1, keepdim=True) / mass
    c = torch.zeros_like(mean)
    if rule.centered:
        floor = None
        if rule.grad_floor:
            z = x - alpha * center_of(x, phi, weight, 0.0) + shift
            floor = rule.grad_floor * spread_of(z, rule, weight, 0.0)
        c = center_of(x, phi, weight, nudge, floor)
    z = x - alpha * c + shift
    s = torch.ones_like(mean)
    y = z
    if rule.scaled:
        s = spread_of(x if rule.scale_first else z, rule, weight, nudge)
        y = z / (s**2 + rule.eps).sqrt()
    return torch.where(weight > 0, gamma * y + beta, 0.0), c, s, mean, var, mass


def oracle(
    of: Inputs, groups: Grouping, rule: Rule, nudge: float = 0.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """Output and statistics in float64, as ``problem`` lays them out. ``dtype``: of x as it was given."""
    x, phi, alpha, shift, gamma, beta, weight = of
    if rule.learned is not None:
        low, high, start = rule.learned
        phi = low + (high - low) * torch.sigmoid(phi + start)
    if rule.guard is not None:
        factor, joint = guard_by_formulas(x.detach(), rule.guard)[1:]
        f, about = factor.reshape(-1, *[1] * (x.dim() - 1)), joint.reshape(-1, *[1] * (x.dim() - 2))
        pulled = about + f * (x - about)
        rounding = pulled.detach().to(dtype).double() - pulled.detach()  # it is a tensor like x again
        x = torch.where(f == 1, x, pulled + rounding)

    def full(value: float | Tensor | None, default: float) -> Tensor:
        if isinstance(value, Tensor):
            return value.expand(x.shape)
        return torch.full(x.shape, default if value is None else value, dtype=torch.float64)

    each = [x, *(full(v, d) for v, d in ((alpha, 1.0), (shift, 0.0), (gamma, 1.0), (beta, 0.0), (weight, 1.0)))]
    shape = problem.statistics_shape(x.shape, groups)
    if isinstance(groups, Segments):
        found = [torch.zeros(shape, dtype=torch.float64) for _ in range(5)]
        y = torch.zeros_like(x)
        for segment in range(groups.number):
            rows = (groups.index == segment).nonzero().flatten()
            if not len(rows):
                continue
            power = phi.expand(shape)[segment][:, None] if isinstance(phi, Tensor) else phi
            values, *others = [value[rows].t() for value in each]
            part, *statistics = normalize_rows(values, power, *others, rule, nudge)
            y = y.index_copy(0, rows, part.t())
            found = [
                old.index_copy(0, torch.tensor([segment]), new.t()) for old, new in zip(found, statistics, strict=True)
            ]
        return y, *found
    kept = [d for d in range(x.dim()) if d not in groups.dims]
    order = [*kept, *groups.dims]
    rows, members = math.prod([x.shape[d] for d in kept]), math.prod([x.shape[d] for d in groups.dims])
    power = phi
    if isinstance(phi, Tensor):
        if phi.dim() == x.dim():  # with the reduced axes
            phi = phi.permute(order).reshape([phi.shape[d] for d in kept])
        power = phi.expand([x.shape[d] for d in kept]).reshape(rows, 1)
    values, *others = [value.permute(order).reshape(rows, members) for value in each]
    part, *statistics = normalize_rows(values, power, *others, rule, nudge)
    back = [order.index(d) for d in range(x.dim())]
    y = part.reshape([x.shape[d] for d in order]).permute(back)
    return y, *[value.reshape(shape) for value in statistics]


NAMES = ["y", "center", "spread", "mean", "var", "mass"]
GRADIENTS = [f"d{name}" for name in Inputs._fields]


def with_gradients(of: Inputs, groups: Grouping, rule: Rule, grads: Incoming, nudge: float) -> dict[str, Tensor]:
    leaves = Inputs(*[v.detach().double().requires_grad_() if isinstance(v, Tensor) else v for v in of])
    found = oracle(leaves, groups, rule, nudge, of.x.dtype)
    total = sum((out * grad.double()).sum() for out, grad in zip(found, grads, strict=False) if grad is not None)
    named = {name: value for name, value in zip(GRADIENTS, leaves, strict=True) if isinstance(value, Tensor)}
    parts = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(leaf) if part is None else part
        for (name, leaf), part in zip(named.items(), parts, strict=True)
    }
    if of.weight is not None:  # by convention: what is ignored gets nothing
        gradients["dweight"] = torch.where(of.weight > 0, gradients["dweight"], 0.0)
    return {**dict(zip(NAMES, (value.detach() for value in found), strict=True)), **gradients}


@cache
def truth(layout: str, option: str, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What must come out, and what the last digits of a center change in it.

    Below φ = 2 the part of a value next to the center in the gradient is as large as it is near: the rounding of the
    center is magnified there, whoever computes it.
    """
    of, groups, rule = case(layout, option, dtype)
    grads = incoming(of, groups, OPTIONS[option])
    rounding = torch.finfo(computing(dtype)).eps * float(of.x.abs().max())
    exact, above, below = (with_gradients(of, groups, rule, grads, n) for n in (0.0, rounding, -rounding))
    return exact, {name: (above[name] - below[name]).abs() for name in exact}


# The comparison.

# Of the largest value of each result, at least 1. Output and dx are rounded to the dtype itself, by half of a unit in
# the last place: eps/2 in half precision. All else is computed in float32 or float64: a few roundings per value, that a
# sum over a group and a division by the spread pass on. Measured: 5e-7 in float32, 1.1e-15 in float64.
ROUNDED = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
COMPUTED = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2e-6, torch.float16: 2e-6}


def tolerance(name: str, dtype: torch.dtype, option: Option) -> float:
    limit = (ROUNDED if name in ("y", "dx") else COMPUTED)[dtype]
    if "guard" in option.rule and computing(dtype) != dtype:
        # Where pulled samples are stored they are rounded to the dtype; where they are not, not.
        limit = ROUNDED[dtype]
    return limit


def check(found: dict[str, Tensor], layout: str, option: str, dtype: torch.dtype) -> None:
    exact, sensitive = truth(layout, option, dtype)
    present = exact["mass"] > 0
    for name, value in found.items():
        expected = exact[name]
        assert value.shape == expected.shape, name
        error = (value.double() - expected).abs() - 2 * sensitive[name]
        if name in NAMES[1:]:  # the statistics of no values are not asked for
            error = torch.where(present, error, 0.0)
        scale = max(1.0, float(expected.abs().max()))
        limit = tolerance(name, dtype, OPTIONS[option])
        worst = float(error.max() / scale)
        assert worst <= limit, f"{name}: off by {worst:.1e} of the largest, {limit:.1e} allowed"


@contextmanager
def written_by(backend: str, option: Option, layout: Layout) -> Iterator[float]:
    """The backend, and what the column BY must say."""
    with using_backend(backend):
        kernels = backend == "native" and option.on_kernels and layout.on_kernels
        if "guard" in option.rule and layout.memory == "transposed":
            kernels = kernels and option.phi != 2.0  # by rows on torch; all else is pulled there, then handed on
        yield problem.BY_CPU if kernels else problem.BY_TORCH


def is_quick(layout: str, option: str, dtype: torch.dtype) -> bool:
    if dtype == torch.float32:
        return layout in QUICK or option in CORE
    return layout == "NCHW" and option in CORE


def cases() -> list[Any]:
    found = []
    for layout, kind in LAYOUTS.items():
        for option, given in OPTIONS.items():
            if "guard" in given.rule and not kind.can_be_guarded():
                continue
            for dtype in FLOATS:
                marks = [] if is_quick(layout, option, dtype) else [pytest.mark.slow]
                name = f"{layout}-{option}-{str(dtype).removeprefix('torch.')}"
                found.append(pytest.param(layout, option, dtype, marks=marks, id=name))
    return found


def named(y: Tensor, saved: Tensor, of: Inputs, groups: Grouping, gradients: Any) -> dict[str, Tensor]:
    statistics = problem.statistics_of(saved, of.x, groups)
    found = {"y": y, **statistics._asdict()}
    for name, value, part in zip(GRADIENTS, of, gradients, strict=True):
        if isinstance(value, Tensor):
            assert part.dtype == value.dtype, name
            found[name] = part
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("layout", "option", "dtype"), cases())
def test_against_the_oracle(layout: str, option: str, dtype: torch.dtype, backend: str) -> None:
    of, groups, rule = case(layout, option, dtype)
    grads = incoming(of, groups, OPTIONS[option])
    needs = tuple(isinstance(value, Tensor) for value in of)
    with written_by(backend, OPTIONS[option], LAYOUTS[layout]) as by:
        y, saved, _ = choose.normalize(of, groups, rule)
        assert bool((saved.groups[:, problem.BY] == by).all())
        assert (saved.samples is None) == (rule.guard is None)
        gradients = choose.normalize_backward(grads, of, groups, rule, saved, needs)
        assert [part is not None for part in gradients] == list(needs)
        check(named(y, saved.groups, of, groups, gradients), layout, option, dtype)
        assert y.dtype == dtype

        arguments = problem.to_arguments(of, groups, rule)
        out, rows, samples = torch.ops.geonorm.normalize(*arguments)
        kept = Saved(rows, None if rule.guard is None else samples)
        parts = torch.ops.geonorm.normalize_backward(*grads, kept.groups, kept.samples, list(needs), *arguments)
        found = named(out, rows, of, groups, parts)
    for name, value in named(y, saved.groups, of, groups, gradients).items():
        assert torch.equal(found[name], value), f"{name}: not what the operator gives"


# A backend reads what another has kept.


@needs_kernels
@pytest.mark.parametrize(
    "layout", slow_except(["NCHW", "segments"], ["NC", "NCHW", "channels_last", "layer", "segments", "strided"])
)
@pytest.mark.parametrize("option", [name for name, option in OPTIONS.items() if option.on_kernels])
def test_torch_reads_what_the_kernels_have_kept(layout: str, option: str) -> None:
    """As it must where center or spread have gradients too."""
    dtype = torch.float32
    of, groups, rule = case(layout, option, dtype)
    if rule.guard is not None and not LAYOUTS[layout].can_be_guarded():
        pytest.skip("no such case")
    grads, needs = incoming(of, groups, OPTIONS[option]), tuple(isinstance(value, Tensor) for value in of)
    result = cpu.normalize(of, groups, rule)
    assert result is not None
    with using_backend("torch"):
        if rule.guard is None:
            gradients = on_torch.normalize_backward(grads, of, groups, rule, result.saved, needs)
        else:
            gradients = choose.guarded.normalize_backward(
                grads, of, groups, rule, result.saved, needs, on_torch.normalize_backward
            )
    check(named(result.output, result.saved.groups, of, groups, gradients), layout, option, dtype)


@needs_kernels
@pytest.mark.parametrize("option", ["φ=1.5", "φ=1", "robust", "guard, φ=2", "guard, φ=1.5"])
def test_who_wrote_it_does_the_backward(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, groups, rule = case("NCHW", option, torch.float32)
    grads, needs = incoming(of, groups, OPTIONS[option]), tuple(isinstance(value, Tensor) for value in of)
    calls: list[str] = []
    kernels, torchs = cpu.normalize_backward, on_torch.normalize_backward

    def by_kernels(*args: Any) -> Any:
        calls.append("kernels")
        return kernels(*args)

    def by_torch(*args: Any) -> Any:
        calls.append("torch")
        return torchs(*args)

    monkeypatch.setattr(cpu, "normalize_backward", by_kernels)
    monkeypatch.setattr(on_torch, "normalize_backward", by_torch)
    for writer, reader, who in (("torch", "native", "torch"), ("native", "torch", "kernels")):
        with using_backend(writer):
            y, saved, _ = choose.normalize(of, groups, rule)
        calls.clear()
        with using_backend(reader):
            gradients = choose.normalize_backward(grads, of, groups, rule, saved, needs)
        assert calls == [who], f"{writer} wrote, {reader} is asked for"
        check(named(y, saved.groups, of, groups, gradients), "NCHW", option, torch.float32)


@needs_kernels
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("option", ["φ=1", "φ=1.3", "φ=2", "φ=inf", "robust", "guard, φ=2", "guard, φ=1.5"])
def test_the_statistics_of_both_agree(layout: str, option: str) -> None:
    """Also of segments without rows, and beyond the statistics: edges, middle, mass."""
    of, groups, rule = case(layout, option, torch.float64)
    if rule.guard is not None and not LAYOUTS[layout].can_be_guarded():
        pytest.skip("no such case")
    found = []
    for backend in ("native", "torch"):
        with using_backend(backend):
            found.append(choose.normalize(of, groups, rule).saved)
    ours, theirs = (problem.statistics_of(saved.groups, of.x, groups) for saved in found)
    for name, mine in ours._asdict().items():
        torch.testing.assert_close(
            mine, getattr(theirs, name), rtol=1e-11, atol=1e-11, msg=lambda m, n=name: f"{n} {m}"
        )
    columns = [problem.LOWER, problem.UPPER] if OPTIONS[option].phi in (1.0, math.inf) and rule.guard is None else []
    if rule.power is None:
        columns += [problem.MIDDLE]
    for column in columns:
        mine, other = (saved.groups[:, column] for saved in found)
        torch.testing.assert_close(
            mine, other, rtol=1e-11, atol=1e-11, msg=lambda m, c=column: f"{problem.COLUMNS[c]} {m}"
        )
    if rule.guard is not None:
        first, second = (saved.samples for saved in found)
        torch.testing.assert_close(problem.factors_of(first, of.x), problem.factors_of(second, of.x))
        torch.testing.assert_close(problem.joint_center_of(first, of.x), problem.joint_center_of(second, of.x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["NC", "NCHW", "channels_last", "group", "segments"])
@pytest.mark.parametrize("option", ["φ=1", "φ=1.5", "φ=2", "φ=inf", "robust", "not scaled", "not centered", "max_abs"])
def test_every_number_kept_is_written(layout: str, option: str, backend: str) -> None:
    """Nothing of the memory that was there before is among them: the same call keeps the same numbers."""
    of, groups, rule = case(layout, option, torch.float32)
    former = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fresh memory is filled with NaN
    try:
        assert bool(torch.empty(3).isnan().all())
        with using_backend(backend):
            saved = choose.normalize(of, groups, rule).saved
    finally:
        torch.use_deterministic_algorithms(former[0], warn_only=former[1])
    unwritten = saved.groups.isnan().any(0).nonzero().flatten().tolist()
    assert not unwritten, [problem.COLUMNS[column] for column in unwritten]


@needs_kernels
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("option", ["guard, φ=2", "guard, φ=1.5"])
@pytest.mark.parametrize("layout", ["NC", "NCHW", "channels_last"])
def test_what_is_kept_of_the_samples(layout: str, option: str, backend: str) -> None:
    """Factors and distances of the samples, joint center and scale of the channels, then the radius."""
    of, groups, rule = case(layout, option, torch.float64)
    with using_backend(backend):
        samples = choose.normalize(of, groups, rule).saved.samples
    assert samples.shape == (problem.verdict_size(of.x),)
    n, c = of.x.shape[:2]
    factor, distance, center, _, radius = samples.split([n, n, c, c, 1])
    d, f, y = guard_by_formulas(of.x, rule.guard)
    torch.testing.assert_close(factor, f)
    assert int((factor < 1).sum()) >= 1
    torch.testing.assert_close(center, y)
    torch.testing.assert_close(distance, d)
    torch.testing.assert_close(radius, rule.guard * d.sort().values[[(n - 1) // 2]])


class TestOracle:
    """The oracle itself, by finite differences."""

    SMALL: ClassVar = ["φ=1", "φ=1.3", "φ=inf", "φ learned", "robust", "all", "power 3", "scale first", "weight"]

    @pytest.mark.parametrize(
        "option",
        slow_except(
            SMALL, [name for name, option in OPTIONS.items() if not {"guard", "grad_floor"} & set(option.rule)]
        ),
    )
    def test_gradients(self, option: str) -> None:
        """Of one group. The guard and ``grad_floor`` are no derivatives, and left out."""
        of, groups, rule = case("layer", option, torch.float64)
        given = {"x": of.x[:1, :7].clone()}
        for name in ("alpha", "shift", "gamma", "beta"):
            if isinstance(value := getattr(of, name), Tensor):
                given[name] = value[:7].clone()
        if of.weight is not None:
            given["weight"] = of.weight[:1, :7].clamp_min(0.1)  # 0 is the end of the range
        of = of._replace(**given)
        leaves = [value.clone().requires_grad_() for value in of if isinstance(value, Tensor)]

        def f(*given: Tensor) -> tuple[Tensor, ...]:
            rest = iter(given)
            values = Inputs(*[next(rest) if isinstance(value, Tensor) else value for value in of])
            return oracle(values, groups, rule)[:3]

        assert torch.autograd.gradcheck(f, leaves, eps=1e-6, atol=2e-5, rtol=1e-4)

    def test_like_torch(self) -> None:
        of, groups, rule = case("NCHW", "φ=2", torch.float64)
        y = oracle(of, groups, rule)[0]
        expected = torch.nn.functional.batch_norm(
            of.x, None, None, of.gamma.flatten(), of.beta.flatten(), training=True, eps=rule.eps
        )
        torch.testing.assert_close(y, expected)
