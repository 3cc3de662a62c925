"""Layers as cases: normalized over several processes, against one process with the concatenated batch."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

import geonorm

PHIS = (1.0, 1.2, 1.5, 2.0, 3.0, math.inf, "learned")
SPREADS = ("rms", "mean_abs", "max_abs", "robust", 3.0)
SPLITS = ("equal", "unequal", "empty")
LAYERS = ("AugBatchNorm1d", "AugBatchNorm2d", "PopNorm1d", "PopNorm2d")


class Case(NamedTuple):
    layer: str
    phi: float | str
    spread: str | float
    split: str
    dtype: torch.dtype = torch.float64
    seed: int = 0
    channels: int = 3
    positions: int = 6
    guard: float | None = None

    def build(self, process_group: str | None) -> nn.Module:
        dtype = self.dtype if self.dtype == torch.float64 else torch.float32  # for values of half precision too
        options: dict[str, Any] = {"spread": self.spread, "dtype": dtype, "guard": self.guard}
        if self.phi == "learned":
            options["learn_phi"] = True
            if self.layer.startswith("Aug"):
                options |= {"learn_alpha": True, "alpha": 0.9}
        else:
            options["phi"] = self.phi
        layer = getattr(geonorm, self.layer)(self.channels, process_group=process_group, **options)
        generator = torch.Generator().manual_seed(self.seed + 1)
        for parameter in layer.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
        return layer  # type: ignore[no-any-return]

    def batch(self, size: int) -> tuple[Tensor, Tensor, list[int]]:
        """Values, the gradient of the output, and how many samples each process has."""
        generator = torch.Generator().manual_seed(self.seed)
        parts = split(self.split, size, generator)
        shape = (sum(parts), self.channels) + (() if self.layer.endswith("1d") else (1, self.positions))
        x, g = (torch.randn(shape, generator=generator) for _ in range(2))
        x = 2 * x + 0.5
        if self.guard is not None:
            x[1::6] *= 30
        return x.to(self.dtype), g.to(self.dtype), parts


def split(kind: str, size: int, generator: torch.Generator) -> list[int]:
    if kind == "equal":
        return [6] * size
    if kind == "unequal":
        return [3 + 4 * rank for rank in range(size)]
    if kind == "empty":
        return [0 if rank == size - 1 else 5 + rank for rank in range(size)]
    parts = torch.randint(0, 9, (size,), generator=generator).tolist()
    return parts if sum(parts) > 1 else [2] * size


def all_cases() -> Iterator[Case]:
    for layer, phi, spread, how in itertools.product(LAYERS, PHIS, SPREADS, SPLITS):
        for dtype in (torch.float64, torch.float32):
            yield Case(layer, phi, spread, how, dtype)
            if phi in (1.5, 2.0) and spread in ("rms", "max_abs", "robust"):
                yield Case(layer, phi, spread, how, dtype, guard=2.5)


def some_cases() -> Iterator[Case]:
    """Every φ with every spread once, with layers, splits and dtypes taking turns."""
    turns = itertools.cycle(itertools.product((torch.float64, torch.float32), LAYERS, SPLITS))
    for phi, spread in itertools.product(PHIS, SPREADS):
        dtype, layer, how = next(turns)
        yield Case(layer, phi, spread, how, dtype)
    for layer, how in itertools.product(LAYERS, SPLITS):
        yield Case(layer, 2.0, "rms", how, guard=3.0)
        yield Case(layer, 1.5, "rms", how, guard=2.5)


def random_cases(size: int, number: int) -> Iterator[Case]:
    """Layers, shapes, dtypes, exponents and splits at random."""
    generator = torch.Generator().manual_seed(size)

    def pick(choices: tuple[Any, ...]) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    for seed in range(number):
        phi = pick((*PHIS, 1.05 + 3 * float(torch.rand((), generator=generator))))
        dtype = pick((torch.float32, torch.float64, torch.bfloat16, torch.float16))
        yield Case(pick(LAYERS), phi, pick(SPREADS), "random", dtype, seed, pick((1, 2, 5, 33)), pick((1, 4, 7, 100)))


def gradient_tolerance(case: Case) -> float:
    if case.dtype in (torch.bfloat16, torch.float16):
        return 2 * torch.finfo(case.dtype).eps
    if case.dtype == torch.float64:
        return 1e-9
    if case.phi == "learned" or (case.spread == "robust" and case.phi != 1.2):
        return 1e-5  # the robust spread is itself a center, at 1.5
    assert isinstance(case.phi, float)
    return 1e-6 if case.phi >= 2 or case.phi == 1 else 1e-5 if case.phi >= 1.5 else 1e-3


def gradients(layer: nn.Module, _: Tensor, of_x: Tensor) -> dict[str, Tensor]:
    return {"x": of_x, **{name: p.grad for name, p in layer.named_parameters() if p.grad is not None}}


def alone(case: Case, x: Tensor, g: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    """In one process: the layer after a step, its output, and the gradient of x."""
    layer, values = case.build(None), x.clone().requires_grad_()
    output = layer(values)
    output.backward(g)
    assert values.grad is not None
    return layer, output, values.grad


def mismatch(case: Case, rank: int, size: int, group: str | None = "world") -> str:
    """What differs; empty if nothing does. Every process comes to the same verdict."""
    x, g, parts = case.batch(size)
    one, expected, expected_grad = alone(case, x, g)
    # In float64, at the values and at values moved by one digit of their dtype: what such a digit can change in a
    # gradient, by a center that comes to lie a little nearer to a value, nobody can be asked to reproduce.
    wide = case._replace(dtype=torch.float64)
    exact = gradients(*alone(wide, x.double(), g.double()))
    last_digit = dict.fromkeys(exact, 0.0)
    for turn in range(4):
        signs = torch.randint(0, 2, x.shape, generator=torch.Generator().manual_seed(turn)) * 2 - 1
        moved = gradients(*alone(wide, x.double() * (1 + torch.finfo(case.dtype).eps * signs), g.double()))
        last_digit = {name: max(last_digit[name], float((moved[name] - exact[name]).norm())) for name in exact}
    together = case.build(group)
    start = sum(parts[:rank])
    mine = slice(start, start + parts[rank])
    local = x[mine].clone().requires_grad_()
    output = together(local)
    output.backward(g[mine])
    assert local.grad is not None
    near = {torch.float64: 1e-12, torch.float32: 3e-6}.get(case.dtype, 2 * torch.finfo(case.dtype).eps)
    found = []

    def compare(
        name: str, difference: Tensor, size_of: Tensor, tolerance: float, own_error: Tensor | float = 0.0
    ) -> None:
        """``own_error``: how far the single process is from the truth; nobody can be asked to be closer to it."""
        allowed = torch.maximum(tolerance * size_of, 2.0 * torch.as_tensor(own_error))
        if not bool(difference <= allowed):
            found.append(f"{name} {float(difference / size_of):.2g} > {tolerance:g}")

    def worst(value: Tensor) -> Tensor:
        value = value.detach().double().abs().max() if value.numel() else torch.zeros((), dtype=torch.float64)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return value

    def total(value: Tensor) -> Tensor:
        value = value.detach().double().clone()
        dist.all_reduce(value)
        return value

    compare("output", worst(output - expected[mine]), worst(expected), near)
    for (name, buffer), (_, other) in zip(one.named_buffers(), together.named_buffers(), strict=True):
        if name == "guard_counts":  # each process counts its own samples
            assert torch.equal(total(other)[2:], buffer[2:].double()), (case, total(other), buffer)
            continue
        compare(name, worst(other.double() - buffer.double()), worst(buffer).clamp_min(1.0), near)
    tolerance = gradient_tolerance(case)
    off = total((local.grad - expected_grad[mine]).double().square().sum()).sqrt()
    compare("x.grad", off, expected_grad.double().norm(), tolerance, 4 * last_digit["x"])
    for name, parameter in one.named_parameters():
        own, other = parameter.grad, together.get_parameter(name).grad
        assert own is not None
        assert other is not None
        off = (total(other) - own).norm()
        compare(f"{name}.grad", off, own.double().norm(), tolerance, 4 * last_digit[name])
    return f"{case} of {parts}: " + ", ".join(found) if found else ""


def mismatches(rank: int, size: int, cases: list[Case]) -> list[str]:
    return [text for case in cases if (text := mismatch(case, rank, size))]


def fails_without_a_group(rank: int, size: int) -> bool:
    """The comparison can fail: layers that are not joined differ."""
    case = Case("AugBatchNorm1d", 1.5, "rms", "unequal")
    return bool(mismatch(case, rank, size, group=None))
