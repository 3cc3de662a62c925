"""``project_scale_invariant``: parameter groups of a model for optimization on spheres."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..html.text import table
from ..introspect.invariance import Unit, measure_invariance
from ..introspect.scale_parts import Parts, dots, parts_by_table, parts_of, per_value
from ..introspect.select import check_model


class SphereGroups(list[dict[str, Any]]):
    """Parameter groups for ``SphereSGD`` or any other optimizer. Prints as a table.

    Attributes:
        parts: the weights on spheres, and how they are divided into parts.
    """

    def __init__(self, model: nn.Module, parts: list[Parts], radius: float | None) -> None:
        self.parts = [part for part in parts if all(p.requires_grad for p, _ in part.members(model))]
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._spheres = []
        for part in self.parts:
            members = part.members(model)
            joint = part.bias is not None
            number = part.number if part.kind == "group" else None
            # A weight with its bias is one system of spheres for both, so a group of its own.
            key = (part.kind, number, part.dim, part.parameter if joint else None)
            group = groups.setdefault(
                key, {"params": [], "unit": part.kind, "parts": number, "dim": part.dim, "joint": joint}
            )
            group["params"] += [p for p, _ in members]
            self._spheres.append(Sphere([p for p, _ in members], [dim for _, dim in members], part.number))
        taken = {id(p) for group in groups.values() for p in group["params"]}
        rest = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
        super().__init__([*groups.values(), *([{"params": rest, **NO_SPHERE}] if rest else [])])
        if radius is not None:
            for sphere in self._spheres:
                sphere.radius.fill_(radius)
            self.project()

    def project(self) -> None:
        """Put all weights back onto their spheres; for other optimizers than ``SphereSGD``, after each step."""
        for sphere in self._spheres:
            sphere.project()

    def __str__(self) -> str:
        rows = [
            (part.parameter, part.bias or "", part.kind, str(part.number), _span(sphere.radius))
            for part, sphere in zip(self.parts, self._spheres, strict=True)
        ]
        free = next((group for group in self if group["unit"] is None), None)
        last = f"\n{0 if free is None else len(free['params'])} other parameters, not on spheres"
        return "\n".join(table(("weight", "with", "sphere per", "spheres", "radius"), rows)) + last


NO_SPHERE: dict[str, Any] = {"unit": None, "parts": None, "dim": 0, "joint": False}


class Sphere:
    """Tensors whose parts keep their lengths, such as the rows of a weight."""

    def __init__(self, tensors: list[Tensor], dims: list[int], number: int, radius: Tensor | None = None) -> None:
        self.tensors, self.dims, self.number = tensors, dims, number
        self.radius = self.lengths() if radius is None else radius

    @torch.no_grad()
    def lengths(self) -> Tensor:
        """‖w‖ of each part."""
        return self.dots(self.tensors, self.tensors).sqrt()

    def dots(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """⟨a, b⟩ of each part, at least in float32."""
        return dots([_wide(x) for x in a], [_wide(x) for x in b], self.dims, self.number)

    @torch.no_grad()
    def tangent(self, vectors: list[Tensor]) -> list[Tensor]:
        """Vectors without their component along w: (I − ŵŵᵗ)v. Unchanged for parts of length 0."""
        squares = self.dots(self.tensors, self.tensors)
        along = torch.where(squares == 0, 0.0, self.dots(self.tensors, vectors) / squares)
        return [
            (v - per_value(along, v, dim) * w).to(v.dtype)
            for v, w, dim in zip(vectors, self.tensors, self.dims, strict=True)
        ]

    @torch.no_grad()
    def project(self) -> None:
        """Scale every part back to its radius. A part that had length 0 keeps its present length."""
        lengths = self.lengths()
        self.radius = torch.where(self.radius > 0, self.radius, lengths)
        factors = torch.where(lengths == 0, 1.0, self.radius / lengths)
        for tensor, dim in zip(self.tensors, self.dims, strict=True):
            tensor.mul_(per_value(factors, tensor, dim))


def project_scale_invariant(
    model: nn.Module,
    batches: Any = None,
    *,
    units: Iterable[Unit] | None = None,
    radius: float | None = None,
) -> SphereGroups:
    """Parameter groups of a model, by the kind of spheres: per row, per group of rows, per matrix, or none.

    The loss does not depend on the length of a scale-invariant weight, but its learning speed does: a weight that grows
    learns ever more slowly. On a sphere the effective learning rate stays constant, lr / radius².

    Args:
        model: any model. Frozen parameters are left out.
        batches: a batch or several, for ``geonorm.analysis.invariance`` to find the invariant weights by trying.
            Without them a table of known cases is used, which covers norms right after operations and normalized
            weights, in their current mode. It cannot tell whether a Linear before a BatchNorm1d takes inputs
            ``(N, L, C)``: pass batches if L is the number of its outputs.
        units: an earlier result of ``invariance``, instead of both.
        radius: put all parts onto spheres of this radius now. That changes no output in training; running statistics
            must be recomputed (``geonorm.recalibrate``). By default each part keeps its length.

    Examples:
        >>> import torch
        >>> from geonorm.optim import SphereSGD, project_scale_invariant
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
        >>> groups = project_scale_invariant(model, torch.randn(16, 4), radius=1.0)
        >>> print(groups)
        weight    sphere per  spheres  radius
        --------  ----------  -------  ------
        0.weight  row         6        1
        5 other parameters, not on spheres
        >>> optimizer = SphereSGD(groups, lr=0.1, momentum=0.9)
    """
    check_model(model, "project")
    if radius is not None and not 0 < radius < math.inf:
        raise ValueError(f"expected a finite radius > 0 (got {radius})")
    if units is None and batches is not None:
        return SphereGroups(model, _parts_by_trying(model, batches), radius)
    return SphereGroups(model, parts_by_table(model) if units is None else parts_of(units), radius)


def _parts_by_trying(model: nn.Module, batches: Any) -> list[Parts]:
    """The parts that ``invariance`` finds; for weights without effect, such as before a γ of 0, the known table."""
    found = measure_invariance(model, batches)
    if not found.idle:
        return parts_of(found.units)
    known = [part for part in parts_by_table(model) if part.parameter in found.idle]
    warnings.warn(
        f"{len(found.idle)} weights have no effect on the outputs ({found.idle[0]} is the first), so they cannot be "
        f"tested; the table of known cases puts {len(known)} of them on spheres",
        stacklevel=3,
    )
    return [*parts_of(found.units), *known]


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _span(radius: Tensor) -> str:
    low, high = f"{float(radius.min()):.4g}", f"{float(radius.max()):.4g}"
    return low if low == high else f"{low} to {high}"
