"""The guard in the kernels, on torch and in plain Python must tell the same samples and give the same numbers."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import geonorm
from geonorm.functional import guard
from geonorm.ops import Axes, Inputs, Rule, judge_moments, problem, using_backend
from helpers.oracles import guard_by_formulas

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 6e-2, torch.float16: 2e-2}
OPTIONS: list[dict[str, Any]] = [
    {"phi": 2.0},
    {"phi": 1.5},
    {"phi": 1.0},
    {"phi": math.inf, "spread": "max_abs"},
    {"spread": "robust"},
    {"learn_phi": True, "phi": 1.6},
    {"phi": 2.0, "learn_alpha": True, "alpha": 0.7},
    {"phi": 2.0, "affine": False},
]
SHAPES = [(16, 3, 5, 5), (64, 8), (33, 40), (20, 7, 1, 1), (300, 4, 9), (8, 33, 4, 4), (5, 2, 3, 3, 3), (12, 1, 6, 6)]


def batch(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0, far: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    per_channel = torch.rand(shape[1], generator=generator).reshape(1, -1, *[1] * (len(shape) - 2)) + 0.3
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * per_channel + 3 * per_channel
    if far:
        x[1] *= 30
        x[-2] += 25
    return x.to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("k", [1.5, 3.0])
def test_the_verdict_is_that_of_the_formulas(shape: tuple[int, ...], k: float) -> None:
    x = batch(shape, torch.float64)
    x[:, -1] = torch.relu(x[:, -1] - x[:, -1].median() - 1)  # 0 in most samples
    d, f, y = guard_by_formulas(x, k)
    found = guard(x, k)
    torch.testing.assert_close(found.distance, d.double(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.factor, f.double(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.center, y, rtol=1e-9, atol=1e-12)
    assert bool((found.factor[[1, -2]] < 1).all())


def layouts(x: Tensor) -> dict[str, Tensor]:
    found = {"contiguous": x, "strided": torch.stack([x, x], -1)[..., 0]}
    if x.dim() in (4, 5):
        kind = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        found["channels_last"] = x.contiguous(memory_format=kind)
    return found


def step(layer: torch.nn.Module, x: Tensor) -> dict[str, Tensor]:
    """One step of training: output, gradients and buffers, by name."""
    layer = copy.deepcopy(layer).train()
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(y.dtype)
    y.backward(weight)
    found = {"output": y.detach(), "input": x.grad}
    found |= {name: parameter.grad for name, parameter in layer.named_parameters()}
    return found | dict(layer.named_buffers())


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_kernels_and_torch_agree(shape: tuple[int, ...], options: dict[str, Any], dtype: torch.dtype) -> None:
    spatial = {2: 1, 3: 1, 4: 2, 5: 3}[len(shape)]
    computing = torch.float64 if dtype == torch.float64 else torch.float32
    kind = getattr(geonorm, f"AugBatchNorm{spatial}d")
    layer = kind(shape[1], guard=3.0, dtype=computing, **options)
    x = batch(shape, dtype)
    with using_backend("torch"):
        expected = step(layer, x)
    for name, other in layouts(x).items():
        found = step(layer, other)
        for part, value in expected.items():
            if value is None:
                continue
            scale = max(1.0, float(value.abs().max())) if value.is_floating_point() else 1.0
            # Below φ = 2 the gradient in float32 turns on the last digit of values next to the center.
            tolerance = TOLERANCE[dtype] if options.get("phi", 1.5) >= 2 or dtype != torch.float32 else 5e-2
            error = float((found[part].double() - value.double()).abs().max())
            assert error <= tolerance * scale, (name, part, error)
    assert expected["guard_counts"].tolist() == [1, 1, 2, 0] or shape[0] == 5


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_channel_that_is_mostly_the_same_decides_nothing(backend: str) -> None:
    """A rectified channel is 0 in most samples: its other values are no reason to pull anybody, but a far one is."""
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))
    x[:, 0] = torch.relu(x[:, 0] - 0.5)
    assert bool((guard(x).factor == 1).all())
    layer = geonorm.create_norm("guardbn", 64, dim=1)
    with using_backend(backend):
        layer(x)
        assert layer.guard_counts.tolist() == [1, 0, 0, 0]
        x[7, 0] = 1000.0
        layer(x)
        assert layer.guard_counts.tolist() == [2, 1, 1, 0]


@pytest.mark.parametrize("size", [1e18, 1e30, 3e37])
def test_a_sample_whose_squares_overflow_lands_on_the_ball(size: float) -> None:
    x = batch((16, 4, 6, 6), torch.float32, far=False)
    x[3] *= size
    layer = geonorm.create_norm("guardbn", 4)
    y = layer(x)
    assert bool(y.isfinite().all())
    assert layer.guard_counts.tolist() == [1, 1, 1, 0]
    with using_backend("torch"):
        torch.testing.assert_close(geonorm.create_norm("guardbn", 4)(x), y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("phi", [2.0, 1.5])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_samples_that_are_not_finite_are_as_if_not_there(phi: float, bad: float, backend: str) -> None:
    x = batch((16, 4, 6, 6), torch.float32)
    x[5, 2, 3, 1] = bad
    keep = [i for i in range(16) if i != 5]
    layer = geonorm.AugBatchNorm2d(4, phi=phi, guard=3.0)
    with using_backend(backend):
        found, expected = step(layer, x), step(layer, x[keep])
    assert bool(found["output"][5].isnan().all())
    assert torch.equal(found["output"][keep], expected["output"])
    for name in ("running_mean", "running_var", "num_batches_tracked", *["running_center"] * (phi != 2)):
        assert torch.equal(found[name], expected[name])
    assert found["guard_counts"].tolist() == [1, 1, 2, 1]
    assert bool((found["input"][5] == 0).all())


def test_a_batch_without_a_finite_sample() -> None:
    layer = geonorm.create_norm("guardbn", 3, dim=1)
    y = layer(torch.full((6, 3), math.nan))
    assert bool(y.isnan().all())
    assert bool(layer.running_mean.isfinite().all())
    assert layer.guard_counts.tolist()[3] == 6


@pytest.mark.parametrize("options", [{"phi": 2.0}, {"phi": 1.5}, {"spread": "robust"}], ids=str)
def test_a_guarded_layer_compiles_as_one_graph(options: dict[str, Any]) -> None:
    x = batch((16, 4, 3, 3), torch.float32)
    layer = geonorm.AugBatchNorm2d(4, guard=3.0, **options)
    plain, compiled = copy.deepcopy(layer), torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, expected = [], []
    for network, parts in ((compiled, found), (plain, expected)):
        leaf = x.clone().requires_grad_()
        y = network(leaf)
        y.pow(3).sum().backward()
        parts += [y.detach(), leaf.grad]
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    for (name, mine), theirs in zip(layer.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)
    assert layer.guard_counts.tolist() == [1, 1, 2, 0]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_the_fake_of_a_guarded_batch_has_the_shapes_of_the_real_one(dtype: torch.dtype, backend: str) -> None:
    x, rule = batch((9, 4, 3), dtype), Rule(guard=3.0)
    arguments = problem.to_arguments(Inputs(x, 1.5, 1.0, None, None, None, None), Axes((0, 2)), rule)
    with using_backend(backend):
        real = torch.ops.geonorm.normalize(*arguments)
    with FakeTensorMode() as mode:
        fake = torch.ops.geonorm.normalize(mode.from_tensor(x), *arguments[1:])
    assert real[2].shape == (2 * (9 + 4) + 1,)
    for mine, theirs in zip(real, fake, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride())


def test_channels_that_a_sample_does_not_have_are_left_out() -> None:
    mean, deviation = torch.randn(12, 5).double(), torch.rand(12, 5).double()
    present = torch.ones(12, 5, dtype=torch.bool)
    present[3, 2] = present[7] = False
    mean[~present] = math.nan
    found = judge_moments(mean, deviation, 3.0, present)
    rest = [i for i in range(12) if i != 7]
    others = judge_moments(mean[rest], deviation[rest], 3.0, present[rest])
    assert found.factor[7] == 1
    assert found.distance[7] == 0
    torch.testing.assert_close(found.center, others.center)
    torch.testing.assert_close(found.radius, others.radius)
    assert bool(found.center.isfinite().all())
