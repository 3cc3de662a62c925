"""The launches of segments, one each way, and the list of their rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..grouping import Segments
from ..problem import Inputs, Rule, Saved
from .gradients import BY_GAMMA, by_parameter
from .measure import new_rows
from .parameters import Parameters
from .plan import Plan
from .tiles import blocks, segments_tile


def measure(x: Tensor, y: Tensor | None, p: Parameters, rule: Rule, found: Plan, groups: Segments) -> Tensor:
    """The saved rows, and the output in ``y``."""
    from .kernels import segments_kernel

    rows, (grid, how) = new_rows(x, found.layout), _launch(groups, p, rule, found)
    segments_kernel[grid](
        x, y, rows, **how, beta=p.beta, eps=rule.eps, grad_floor=rule.grad_floor, CENTERED=rule.centered
    )
    return rows


def gradients(
    x: Tensor,
    g: Tensor,
    of: Inputs,
    p: Parameters,
    groups: Segments,
    rule: Rule,
    found: Plan,
    saved: Saved,
    needs: tuple[bool, ...],
) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of x, and of φ, α, b, γ and β."""
    from .kernels import GRADIENT_ROWS, segments_backward_kernel

    at, (grid, how) = found.layout, _launch(groups, p, rule, found)
    dx, per_group = torch.empty_like(x), x.new_empty((GRADIENT_ROWS, at.G), dtype=torch.float32)
    segments_backward_kernel[grid](x, g, dx, saved.groups, **how, gradients=per_group, LEARNED=needs[1])
    return dx, by_parameter(per_group, per_group[BY_GAMMA:], of, groups, rule, at, needs)


def _launch(groups: Segments, p: Parameters, rule: Rule, found: Plan) -> tuple[tuple[int], dict[str, Any]]:
    """Grid and common arguments. Whether the rows come in order is not asked: the answer would wait for the device."""
    at, number = found.layout, groups.number
    index, members = torch.sort(groups.index, stable=True)
    offsets = torch.searchsorted(index, torch.arange(number + 1, dtype=index.dtype, device=index.device))
    features = at.G // number
    tile = segments_tile(features)
    return (number * blocks(features, tile["BG"]),), {
        "offsets": offsets, "members": members, **p.center(), **p.removed(), "gamma": p.gamma,
        "q2_number": rule.spread_phi - 1, "factor": found.factor, "floor": found.floor, "N": at.m, "S": number,
        "F": features, "G": at.G, "PG": at.PG, "POWER": found.power, "ROOT": found.root, "ROOT_2": found.root_2,
        "SPREAD_KIND": found.kind, "BIG": at.BIG, **tile,
    }  # fmt: skip
