"""One normalization over several processes against the same one in a single process, on the concatenated batch."""

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
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, process_group: str | None) -> nn.Module:
        options: dict[str, Any] = {"spread": self.spread, "dtype": self.dtype, **dict(self.options)}
        if self.phi == "learned":
            options["learn_phi"] = True
            if self.layer.startswith("Aug"):
                options |= {"learn_alpha": True, "alpha": 0.9}
        else:
            options["phi"] = self.phi
        layer = getattr(geonorm, self.layer)(3, process_group=process_group, **options)
        generator = torch.Generator().manual_seed(self.seed + 1)
        for parameter in layer.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=self.dtype)
        return layer

    def batch(self, size: int) -> tuple[Tensor, Tensor, list[int]]:
        """Values, the gradient of the output, and how many samples each process has."""
        generator = torch.Generator().manual_seed(self.seed)
        parts = split(self.split, size, generator)
        shape = (sum(parts), 3) if self.layer.endswith("1d") else (sum(parts), 3, 2, 3)
        x, g = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        return (2 * x + 0.5).to(self.dtype), g.to(self.dtype), parts


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


def some_cases() -> Iterator[Case]:
    """Every φ with every spread once, with layers, splits and dtypes taking turns."""
    turns = itertools.cycle(itertools.product((torch.float64, torch.float32), LAYERS, SPLITS))
    for phi, spread in itertools.product(PHIS, SPREADS):
        dtype, layer, how = next(turns)
        yield Case(layer, phi, spread, how, dtype)


def gradient_tolerance(case: Case) -> float:
    if case.dtype == torch.float64:
        return 1e-9
    if case.phi == "learned" or (case.spread == "robust" and case.phi != 1.2):
        return 1e-5  # the robust spread is itself a center, at 1.5
    return {1.2: 1e-3, 1.5: 1e-5}.get(case.phi, 1e-6)  # type: ignore[call-overload]


def mismatch(case: Case, rank: int, size: int, group: str | None = "world") -> str:
    """What differs; empty if nothing does. Every process comes to the same verdict."""
    x, g, parts = case.batch(size)
    alone, together = case.build(None), case.build(group)
    whole = x.clone().requires_grad_()
    expected = alone(whole)
    expected.backward(g)
    start = sum(parts[:rank])
    mine = slice(start, start + parts[rank])
    local = x[mine].clone().requires_grad_()
    output = together(local)
    output.backward(g[mine])
    near = 1e-12 if case.dtype == torch.float64 else 3e-6
    found = []

    def compare(name: str, difference: Tensor, size_of: Tensor, tolerance: float) -> None:
        error = float(difference / size_of.clamp_min(1e-300))
        if not error <= tolerance:
            found.append(f"{name} {error:.2g} > {tolerance:g}")

    def worst(value: Tensor) -> Tensor:
        value = value.detach().double().abs().max() if value.numel() else torch.zeros((), dtype=torch.float64)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return value

    def total(value: Tensor) -> Tensor:
        value = value.detach().double().clone()
        dist.all_reduce(value)
        return value

    compare("output", worst(output - expected[mine]), worst(expected), near)
    for (name, buffer), (_, other) in zip(alone.named_buffers(), together.named_buffers(), strict=True):
        compare(name, worst(other.double() - buffer.double()), worst(buffer).clamp_min(1.0), near)
    assert whole.grad is not None
    assert local.grad is not None
    off = total((local.grad - whole.grad[mine]).double().square().sum()).sqrt()
    compare("x.grad", off, whole.grad.double().norm(), gradient_tolerance(case))
    for (name, parameter), (_, other) in zip(alone.named_parameters(), together.named_parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        compare(
            f"{name}.grad", (total(other.grad) - parameter.grad).norm(), parameter.grad.norm(), gradient_tolerance(case)
        )
    return f"{case} of {parts}: " + ", ".join(found) if found else ""


def mismatches(rank: int, size: int, cases: list[Case]) -> list[str]:
    return [text for case in cases if (text := mismatch(case, rank, size))]


def fails_without_a_group(rank: int, size: int) -> bool:
    """The comparison can fail: layers that are not joined differ."""
    case = Case("AugBatchNorm1d", 1.5, "rms", "unequal")
    return bool(mismatch(case, rank, size, group=None))
