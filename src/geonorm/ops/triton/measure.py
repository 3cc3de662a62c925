"""The launches that measure the groups and write the saved rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..problem import COLUMNS, Rule
from .layout import Layout
from .parameters import Parameters
from .plan import MEAN_ABS, ROBUST, Plan
from .tiles import SMALL, blocks, in_registers, parts_of, power_of_two, sample_of

SWEEPS = 3  # of a large group before it is finished; one that is certified earlier is left alone
_STEPS = 4  # on the subsample
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-4, torch.float16: 1e-4}  # of the certificate, over the scale


def new_rows(x: Tensor, at: Layout) -> Tensor:
    """Memory for the saved rows."""
    return x.new_empty((at.G, len(COLUMNS)), dtype=torch.float64)


def is_small(at: Layout) -> bool:
    """Whether the values of a group stay in registers."""
    return at.m <= SMALL


def measure_small(x: Tensor, y: Tensor | None, p: Parameters, rule: Rule, found: Plan) -> Tensor:
    """Rows, and the output in ``y``, in one launch."""
    from .kernels import small_kernel

    at, rows = found.layout, new_rows(x, found.layout)
    tile = in_registers(at)
    small_kernel[(blocks(at.G, tile["BG"]),)](
        x, y, rows, **p.center(), **p.removed(), **p.affine(), **at.where(), **at.affine(), BIG=at.BIG,
        eps=rule.eps, grad_floor=rule.grad_floor, q2_number=rule.spread_phi - 1, factor=found.factor,
        floor=found.floor, CENTERED=rule.centered, POWER=found.power, ROOT=found.root, ROOT_2=found.root_2,
        SPREAD_KIND=found.kind, **tile,
    )  # fmt: skip
    return rows


class _Search(NamedTuple):
    """One of the two searches of large groups: for the center, and for that of the distances from it."""

    q: dict[str, Any]
    about: Tensor | None  # FOLDED: α·c − b, whose distances are searched
    centered: bool
    power: bool
    root: bool


def measure_large(x: Tensor, p: Parameters, rule: Rule, found: Plan) -> Tensor:
    """Rows, in ``SWEEPS`` + 3 launches, and as many again for a robust spread."""
    from .kernels import about_kernel

    at = found.layout
    first = _find(x, _Search(p.center(), None, rule.centered, found.power, found.root), found)
    second = first
    if found.kind in (MEAN_ABS, ROBUST):
        about = x.new_empty((2, at.G), dtype=torch.float32)
        about_kernel[(blocks(at.G, 128),)](first, about, **p.removed(), G=at.G, BG=128)
        q = {"phi": None, "q_number": rule.spread_phi - 1, "phi_count": 1}
        second = _find(x, _Search(q, about, True, found.kind == ROBUST, found.root_2), found)
    return settle(x, first, second, None, p, rule, found)


def settle(
    x: Tensor, first: Tensor, second: Tensor, mass: Tensor | None, p: Parameters, rule: Rule, found: Plan
) -> Tensor:
    """The rows from what was found. ``mass``: how many values count in every group, if not all."""
    from .kernels import settle_kernel

    at, rows = found.layout, new_rows(x, found.layout)
    settle_kernel[(blocks(at.G, 128),)](
        first, second, mass, rows, **p.removed(), m=at.m, eps=rule.eps, grad_floor=rule.grad_floor,
        factor=found.factor, floor=found.floor, G=at.G, SPREAD_KIND=found.kind, BG=128,
    )  # fmt: skip
    return rows


def _find(x: Tensor, search: _Search, found: Plan) -> Tensor:
    """What was found about every group: float64 [rows of kernels/large.py, groups]."""
    from .kernels import FOUND_ROWS, STATE_ROWS, SUM_ROWS, finish_kernel, start_kernel, sweep_kernel

    at = found.layout
    share = parts_of(at)
    # Sweep k reads state k − 1 and its sums, and writes state k: no program reads what another of its launch writes.
    states = [x.new_empty((STATE_ROWS, at.G), dtype=torch.float64) for _ in range(2)]
    sums = [x.new_empty((SUM_ROWS, at.G, share.PARTS), dtype=torch.float64) for _ in range(2)]
    how: dict[str, Any] = {
        "x": x, **search.q, "about": search.about, **at.where(), "BIG": at.BIG, "FOLDED": search.about is not None,
        "POWER": search.power, "ROOT": search.root,
    }  # fmt: skip
    sample = sample_of(at)
    start_kernel[(blocks(at.G, sample["BG"]),)](**how, state=states[0], STEPS=_STEPS, **sample)
    ends: dict[str, Any] = {
        "tolerance": _TOLERANCE[x.dtype], "SPREAD_KIND": found.kind, "BP": power_of_two(share.PARTS),
    }  # fmt: skip
    sweeps = SWEEPS if search.power else 1
    for k in range(sweeps):
        sweep_kernel[share.grid](
            **how, **ends, state_in=states[(k - 1) % 2 if k else 0], sums_in=sums[(k + 1) % 2], state_out=states[k % 2],
            sums_out=sums[k % 2], AT=k, **share.summing(),
        )  # fmt: skip
    last = (sweeps - 1) % 2
    result = x.new_empty((FOUND_ROWS, at.G), dtype=torch.float64)
    finish_kernel[(at.G,)](
        **how, **ends, state=states[last], sums=sums[last], found=result, AT=sweeps, CENTERED=search.centered,
        PARTS=share.PARTS, BM=1024, num_warps=8,
    )  # fmt: skip
    return result


def write_output(
    x: Tensor, rows: Tensor, p: Parameters, found: Plan, factors: Tensor | None = None, joint: Tensor | None = None
) -> Tensor:
    """y from the rows. Of a guarded batch: factors of the samples and joint center of the channels."""
    from .kernels import output_kernel

    at, y = found.layout, torch.empty_strided(x.shape, found.strides, dtype=x.dtype, device=x.device)
    share = parts_of(at)
    output_kernel[share.grid](
        x, y, rows, **p.removed(), **p.affine(), factors=factors, joint=joint, positions=found.positions,
        **at.where(), **at.affine(), BIG=at.BIG, **share.writing(),
    )  # fmt: skip
    return y


def statistics(x: Tensor, p: Parameters, rule: Rule, found: Plan) -> Tensor:
    """The rows alone."""
    if is_small(found.layout):
        return measure_small(x, None, p, rule, found)
    return measure_large(x, p, rule, found)
