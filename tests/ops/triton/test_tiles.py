"""The programs of a launch cover every value once, and few parts are enough."""

from __future__ import annotations

import pytest
import torch

from geonorm.ops.triton.layout import Layout, layout
from geonorm.ops.triton.tiles import SAMPLE, SMALL, blocks, in_registers, parts_of, power_of_two, sample_of

SHAPES = [(1, 1), (1, 7), (300, 5), (384, 4096), (8193, 64), (12544, 3), (131072, 64), (1605632, 64), (200_000_001, 1)]


def of(m: int, G: int, lanes: bool) -> Layout:
    shape, dims = ((m, G), (0,)) if lanes else ((G, m), (1,))
    found = layout(shape, (shape[1], 1), dims)
    assert found is not None
    return found


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize(("m", "G"), SHAPES)
def test_parts_cover_the_groups(m: int, G: int, lanes: bool) -> None:
    at = of(m, G, lanes)
    share = parts_of(at)
    each = share.OUTER * share.INNER * share.BM
    assert share.PARTS * each >= m
    assert (share.PARTS - 1) * each < m, "a part without values"
    assert share.grid[0] * share.BG >= G
    assert 1 <= share.PARTS <= 64
    assert share.INNER <= 8
    assert (share.PARTS * each == m and share.grid[0] * share.BG == G) == share.EVEN
    assert share.BM * share.BG <= 1024
    for size in (share.BM, share.BG):
        assert size == power_of_two(size)


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("m", [1, 5, 512, 4096, SMALL])
def test_groups_in_registers(m: int, lanes: bool) -> None:
    tile = in_registers(of(m, 64, lanes))
    assert tile["BM"] >= m
    assert tile["BM"] * tile["BG"] <= 32 * 32 * tile["num_warps"], "more than 32 values per thread"


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("m", [1, 7, 100, 4096, 8193, 12345, 1605632])
def test_the_sample_lies_inside(m: int, lanes: bool) -> None:
    sample = sample_of(of(m, 3, lanes))
    i = torch.arange(sample["count"])
    j = (i // sample["RUN"]) * sample["run_stride"] + i % sample["RUN"]
    assert len(j.unique()) == sample["count"] <= min(m, SAMPLE)
    assert int(j.max()) < m
    assert sample["BM"] >= sample["count"]
    assert int(j.max()) >= 0.7 * (m - 1), "the end of the group is not in it"


def test_numbers() -> None:
    assert [power_of_two(n) for n in (1, 2, 3, 1024, 1025)] == [1, 2, 4, 1024, 2048]
    assert [blocks(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
