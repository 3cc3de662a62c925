"""The launches of backward: sums over the groups, then dx; a third where γ or β varies inside of the groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import problem
from ..grouping import Axes, Grouping
from ..learned import LearnedPhi
from ..problem import Inputs, Rule, Saved, per_group_shape
from .layout import Layout
from .parameters import Parameters, summed_to
from .plan import Plan
from .tiles import blocks, parts_of, power_of_two

_BY_PHI, _BY_ALPHA, _BY_SHIFT, BY_GAMMA, _BY_BETA = range(5)  # as in kernels/backward.py


def compute(
    x: Tensor,
    g: Tensor,
    of: Inputs,
    p: Parameters,
    groups: Axes,
    rule: Rule,
    found: Plan,
    saved: Saved,
    needs: tuple[bool, ...],
) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of x, and of φ, α, b, γ and β."""
    from .kernels import BACKWARD_SUM_ROWS, GRADIENT_ROWS, dx_kernel, reduce_kernel

    at, share = found.layout, parts_of(found.layout)
    factors = joint = None
    if saved.samples is not None:
        factors, joint = problem.factors_of(saved.samples, x), problem.joint_center_of(saved.samples, x)
    sums = x.new_empty((BACKWARD_SUM_ROWS, at.G, share.PARTS), dtype=torch.float64)
    dx = torch.empty_strided(x.shape, found.strides, dtype=x.dtype, device=x.device)
    per_group = x.new_empty((GRADIENT_ROWS, at.G), dtype=torch.float32)
    inside = at.JM > 1 and (needs[4] or needs[5])
    about = x.new_empty((3, at.G), dtype=torch.float32) if inside else None
    how: dict[str, Any] = {
        "x": x, "grad": g, "rows": saved.groups, "sums": sums, **p.center(), **p.removed(), "gamma": p.gamma,
        "factors": factors, "joint": joint, "q2_number": rule.spread_phi - 1, "positions": found.positions,
        **at.where(), **at.affine(), "BIG": at.BIG, "POWER": found.power, "LEARNED": needs[1], "ROOT": found.root,
        "ROOT_2": found.root_2, "SPREAD_KIND": found.kind,
    }  # fmt: skip
    reduce_kernel[share.grid](**how, **share.summing())
    dx_kernel[share.grid](
        **how, **share.writing(), dx=dx, gradients=per_group, about=about, factor=found.factor, floor=found.floor,
        PARTS=share.PARTS, BP=power_of_two(share.PARTS),
    )  # fmt: skip
    entries = _by_entry(x, g, about, found) if about is not None else per_group[BY_GAMMA:]
    return dx, by_parameter(per_group, entries, of, groups, rule, at, needs)


def by_parameter(
    rows: Tensor, entries: Tensor, of: Inputs, groups: Grouping, rule: Rule, at: Layout, needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """Gradients of φ, α, b, γ and β from those per group, and per entry of γ and β."""
    parts: list[Tensor | None] = [None] * 5
    if needs[1] and isinstance(of.phi, Tensor):
        parts[0] = _by_offset(rows[_BY_PHI], of.phi, of.x, groups, rule, at.count_shapes[0])
    for i, row, shape in ((1, _BY_ALPHA, at.count_shapes[1]), (2, _BY_SHIFT, at.count_shapes[2])):
        value = of[1 + i]
        if needs[1 + i] and isinstance(value, Tensor):
            parts[i] = summed_to(rows[row], shape, value)
    for i in (3, 4):
        value = of[1 + i]
        if needs[1 + i] and isinstance(value, Tensor):
            parts[i] = summed_to(entries[i - 3], at.parameter_shape, value)
    return parts


def _by_offset(part: Tensor, offset: Tensor, x: Tensor, groups: Grouping, rule: Rule, shape: tuple[int, ...]) -> Tensor:
    """The gradient of a learned φ's offset."""
    assert rule.learned is not None
    full = offset
    if isinstance(groups, Axes):
        full = offset.reshape(per_group_shape(offset.shape, x.shape, groups.dims, "phi"))
    by_phi = summed_to(part, shape, full).reshape(offset.shape).to(offset.dtype)
    return LearnedPhi(offset.detach(), *rule.learned).gradient(by_phi)


def _by_entry(x: Tensor, g: Tensor, about: Tensor, found: Plan) -> Tensor:
    """The gradients of γ and β that vary inside of the groups, [2, entries]."""
    from .kernels import affine_kernel

    at = found.layout
    entries, count = at.PG * at.JM, at.G // at.PG * (at.m // at.JM)
    BP = 1 if at.JD > 1 else min(32, power_of_two(entries))
    BM = min(1024 // BP, power_of_two(count))
    tiles = blocks(count, BM)
    each = max(8, blocks(tiles, 64))
    sums = x.new_empty((2, entries, blocks(tiles, each)), dtype=torch.float32)
    affine_kernel[(blocks(entries, BP), sums.shape[2])](
        x, g, about, sums, **at.where(), **at.affine(), BIG=at.BIG, PARTS=sums.shape[2], TILES=min(each, tiles), BM=BM,
        BP=BP,
    )  # fmt: skip
    return sums.sum(2)
