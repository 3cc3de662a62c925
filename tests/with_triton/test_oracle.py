"""Every layout and option that has kernels against the oracle of ``tests/ops/test_backends.py``, forward and backward.

Small groups stay in registers; ``in_parts`` sends the same groups through the launches for large ones. Segments have
kernels of their own.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import ops.test_backends as matrix
from geonorm.ops import choose, problem
from geonorm.ops.triton import measure

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
REFUSED = {
    "φ=1", "φ=inf", "φ=8", "φ tensor", "all", "power 3", "scale first", "sweeps", "weight", "weight at φ=2",
    "weight, robust", "not scaled", "statistics", "guard, robust", "guard, φ=1.5", "guard, statistics",
    "guard, learned",
}  # fmt: skip
# These have an α or b that varies inside the groups of some layouts.
INSIDE = {"α", "α at φ=2", "shift", "not centered"}
DEEP = {"NC", "NCHW", "channels_last", "layer", "group", "segments"}  # layouts on which every option is tried
CORE = {"φ=1.5", "φ=2", "robust", "φ learned", "guard, φ=2", "shift"}  # options that every layout is tried with


def cases() -> list[Any]:
    found = []
    for layout, kind in matrix.LAYOUTS.items():
        for option, given in matrix.OPTIONS.items():
            if "guard" in given.rule and not kind.can_be_guarded():
                continue
            if layout not in DEEP and option not in CORE:
                continue
            ways = ["in registers"] if kind.segments else ["in registers", "in parts"]
            for dtype, way in itertools.product(FLOATS, ways):
                if dtype == torch.float32 or (layout in ("NCHW", "segments") and option in CORE):
                    name = f"{layout}-{option}-{str(dtype)[6:]}-{way}"
                    found.append(pytest.param(layout, option, dtype, way == "in parts", id=name))
    return found


def is_refused(option: str, layout: str) -> bool:
    return option in REFUSED or (option in INSIDE and layout in ("layer", "group"))


def tolerate_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter cuts digits where it converts to bfloat16, a GPU rounds: a unit of error, not half of one."""
    monkeypatch.setitem(matrix.ROUNDED, torch.bfloat16, 2.0**-7)


@pytest.mark.parametrize(("layout", "option", "dtype", "in_parts"), cases())
def test_against_the_oracle(
    layout: str, option: str, dtype: torch.dtype, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerate_truncation(monkeypatch)
    if in_parts:
        monkeypatch.setattr(measure, "SMALL", 0)
    of, groups, rule = matrix.case(layout, option, dtype)
    grads = matrix.incoming(of, groups, matrix.OPTIONS[option])
    needs = tuple(isinstance(value, Tensor) for value in of)
    y, saved, _ = choose.normalize(of, groups, rule)
    by = problem.BY_TORCH if is_refused(option, layout) else problem.BY_TRITON
    if not (option.startswith("guard") and by == problem.BY_TORCH):  # pulled on torch, then handed on
        assert saved.groups[:, problem.BY].unique().tolist() == [by]
    gradients = choose.normalize_backward(grads, of, groups, rule, saved, needs)
    assert [part is not None for part in gradients] == list(needs)
    assert y.dtype == dtype
    if by == problem.BY_TRITON:
        assert y.stride() == torch.empty_like(of.x).stride()
    found = matrix.named(y, saved.groups, of, groups, gradients)
    matrix.check(found, layout, option, dtype)
