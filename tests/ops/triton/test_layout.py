"""The address of every value, checked against torch's own strides."""

from __future__ import annotations

import math

import pytest
import torch

from geonorm.ops.triton.layout import Layout, is_dense, layout

CASES = {
    "BatchNorm": ((4, 3, 2, 5), (0, 2, 3), "contiguous", (1, 3, 1, 1)),
    "BatchNorm, channels_last": ((4, 3, 2, 5), (0, 2, 3), "channels_last", (3, 1, 1)),
    "2-D": ((7, 3), (0,), "contiguous", (3,)),
    "transposed": ((7, 3), (0,), "transposed", (3,)),
    "LayerNorm": ((4, 6), (1,), "contiguous", (6,)),
    "LayerNorm over two": ((5, 3, 4), (1, 2), "contiguous", (3, 4)),
    "InstanceNorm": ((2, 3, 4, 5), (2, 3), "contiguous", (3, 1, 1)),
    "InstanceNorm, channels_last": ((2, 3, 4, 5), (2, 3), "channels_last", (3, 1, 1)),
    "GroupNorm": ((2, 3, 2, 4, 5), (2, 3, 4), "contiguous", (1, 3, 2, 1, 1)),
    "GroupNorm, channels_last": ((2, 3, 2, 4, 5), (2, 3, 4), "groups last", (1, 3, 2, 1, 1)),
    "images as rows, channels_last": ((3, 4, 2, 2), (1, 2, 3), "channels_last", (1, 4, 1, 1)),
    "everything": ((3, 4), (0, 1), "contiguous", ()),
    "one value each": ((3, 4), (), "contiguous", (4,)),
}


def tensor(shape: tuple[int, ...], memory: str) -> torch.Tensor:
    x = torch.arange(math.prod(shape)).reshape(shape)
    if memory == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if memory == "transposed":
        return x.t().contiguous().t()
    if memory == "groups last":
        return x.permute(0, 3, 4, 1, 2).contiguous().permute(0, 3, 4, 1, 2).permute(0, 3, 4, 1, 2)
    return x


def address(at: Layout, g: int, j: int) -> int:
    """As ``kernels/groups.py`` computes it."""
    return (g // at.GI) * at.g_outer + (g % at.GI) * at.g_inner + (j // at.JI) * at.j_outer + (j % at.JI) * at.j_inner


@pytest.mark.parametrize("name", CASES)
def test_groups_and_parameters(name: str) -> None:
    shape, dims, memory, gamma = CASES[name]
    x = tensor(shape, memory)
    at = layout(tuple(x.shape), x.stride(), dims, (gamma,))
    assert at is not None
    kept = [d for d in range(x.dim()) if d not in dims]
    expected = x.permute(*kept, *dims).reshape(at.G, at.m)
    memory_order = torch.as_strided(x, (x.numel(),), (1,))
    entries = torch.arange(math.prod(at.parameter_shape)).expand(math.prod(at.parameter_shape))
    entry_of = entries.reshape(at.parameter_shape).expand(x.shape)
    by_value = {int(value): int(entry) for value, entry in zip(x.flatten(), entry_of.flatten(), strict=True)}
    assert len(entries) == at.PG * at.JM
    for g in range(at.G):
        values = [int(memory_order[address(at, g, j)]) for j in range(at.m)]
        assert sorted(values) == sorted(expected[g].tolist())
        for j, value in enumerate(values):
            assert (g % at.PG) * at.JM + (j // at.JD) % at.JM == by_value[value], (g, j)


def test_neighbours_in_memory_are_neighbours_in_a_tile() -> None:
    shape, dims, memory, gamma = CASES["GroupNorm, channels_last"]
    x = tensor(shape, memory)
    at = layout(tuple(x.shape), x.stride(), dims, (gamma,))
    assert at is not None
    assert at.j_inner == 1


def test_values_of_a_group_are_one_entry() -> None:
    at = layout((2, 3, 4), (12, 4, 1), (2,), (), ((1, 3, 1), None, (2, 1, 1)))
    assert at is not None
    assert at.counts == (3, 1, 6)  # that varies over the first kept dimension: expanded over the second
    assert at.count_shapes == ((1, 3, 1), (1, 1, 1), (2, 3, 1))


@pytest.mark.parametrize(
    ("shape", "dims", "affine", "per_group"),
    [
        ((4, 3, 5), (0, 2), ((5,),), (None, None, None)),  # γ along the last dimension alone is one block's part
        ((4, 3, 5), (0, 2), ((4, 3, 1),), (None, None, None)),  # entries of samples before those of channels
        ((4, 6), (1,), (), (None, (6,), None)),  # α varies inside the groups
    ],
)
def test_what_cannot_be_addressed(
    shape: tuple[int, ...], dims: tuple[int, ...], affine: tuple, per_group: tuple
) -> None:
    x = torch.empty(shape)
    found = layout(shape, x.stride(), dims, affine, per_group)
    assert found is None or found.JM == 5


def test_dense() -> None:
    x = torch.empty(4, 3, 2, 5)
    for value in (x, x.contiguous(memory_format=torch.channels_last), x.permute(3, 1, 0, 2), x[:1]):
        assert is_dense(value.shape, value.stride())
    for value in (x[:, ::2], x[:, :1].expand(4, 3, 2, 5), x[..., :4]):
        assert not is_dense(value.shape, value.stride())
