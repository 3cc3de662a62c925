"""Repeated calls of a layer: the same as single ones, and never like an earlier one that they only resemble."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.functional import _repeated
from geonorm.ops import using_backend

pytestmark = pytest.mark.skipif(not geonorm.ops.has_kernels(), reason="only the kernels have repeated calls")

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch": (lambda: geonorm.AugBatchNorm1d(5), (12, 5)),
    "images": (lambda: geonorm.AugBatchNorm2d(5), (4, 5, 3, 2)),
    "learned": (lambda: geonorm.AugBatchNorm2d(5, learn_phi=True, learn_alpha=True), (4, 5, 3, 2)),
    "robust": (lambda: geonorm.AugBatchNorm1d(5, spread="robust"), (12, 5)),
    "guard": (lambda: geonorm.AugBatchNorm1d(5, phi=2.0, guard=3.0), (12, 5)),
    "no affine": (lambda: geonorm.AugBatchNorm1d(5, affine=False), (12, 5)),
    "no bias": (lambda: geonorm.AugBatchNorm1d(5, bias=False), (12, 5)),
    "pop": (lambda: geonorm.PopNorm2d(5, guard=3.0), (4, 5, 3, 2)),
    "pop groups": (lambda: geonorm.PopGroupNorm(2, 6, kappa=2.0), (4, 6, 3, 2)),
    "pop instances": (lambda: geonorm.PopInstanceNorm2d(5), (4, 5, 3, 2)),
    "layer": (lambda: geonorm.AugLayerNorm((3, 2)), (4, 5, 3, 2)),
    "group": (lambda: geonorm.AugGroupNorm(2, 6, learn_phi=True), (4, 6, 3, 2)),
    "instance": (lambda: geonorm.AugInstanceNorm2d(5, affine=True), (4, 5, 3, 2)),
}
every = pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)


@pytest.fixture
def repeats(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of inputs whose calls were repeated, as the test goes on."""
    found: list[torch.Size] = []
    run = _repeated.RepeatedCall.run

    def recorded(call: Any, x: Tensor, own: Any) -> Tensor | None:
        found.append(x.shape)
        return run(call, x, own)

    monkeypatch.setattr(_repeated.RepeatedCall, "run", recorded)
    return found


def made(make: Callable[[], nn.Module]) -> nn.Module:
    """A layer with parameters that are not at their start."""
    layer = make().train()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def step(layer: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor | None]:
    """Output, gradients and buffers after one call."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(grad)
    return [y.detach(), x.grad, *[p.grad for p in layer.parameters()], *[b.clone() for b in layer.buffers()]]


def assert_equal(found: list[Tensor | None], wanted: list[Tensor | None]) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@every
def test_repeated_calls_are_single_ones(
    make: Callable[[], nn.Module], shape: tuple[int, ...], repeats: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = made(make)
    alone = copy.deepcopy(layer)
    batches = [(torch.randn(shape), torch.randn(shape)) for _ in range(3)]
    found = [step(layer, *batch) for batch in batches]
    assert repeats == [torch.Size(shape)] * 3
    monkeypatch.setattr(type(alone), "_may_repeat", lambda self: False)
    for mine, batch in zip(found, batches, strict=True):
        assert_equal(mine, step(alone, *batch))
    assert len(repeats) == 3


# Some of their parameters are computed for every call, from those that are learned.
COMPUTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "shift times center": (lambda: geonorm.PopNorm2d(5, shift="mul"), (4, 5, 3, 2)),
    "the same, instances": (lambda: geonorm.PopInstanceNorm2d(5, shift="mul"), (4, 5, 3, 2)),
    "the same, groups": (lambda: geonorm.PopGroupNorm(2, 6, shift="mul"), (4, 6, 3, 2)),
    "scaled first": (lambda: geonorm.PopGroupNorm(2, 6, order="scale_first"), (4, 6, 3, 2)),
    "learned, before": (lambda: geonorm.PopInstanceNorm2d(5, learn_phi=True, phi=1.6), (4, 5, 3, 2)),
    "learned, groups before": (lambda: geonorm.PopGroupNorm(2, 6, learn_phi=True, phi=1.6), (4, 6, 3, 2)),
}


@pytest.mark.parametrize(("make", "shape"), [*LAYERS.values(), *COMPUTED.values()], ids=[*LAYERS, *COMPUTED])
def test_what_is_learned_is_read_in_every_call(
    make: Callable[[], nn.Module], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = made(make)
    for _ in range(2):
        step(layer, torch.randn(shape), torch.randn(shape))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    alone, batch = copy.deepcopy(layer), (torch.randn(shape), torch.randn(shape))
    found = step(layer, *batch)
    monkeypatch.setattr(type(alone), "_may_repeat", lambda self: False)
    assert_equal(found, step(alone, *batch))


@every
def test_paused_statistics(make: Callable[[], nn.Module], shape: tuple[int, ...], repeats: list[torch.Size]) -> None:
    """As when checkpointing calls a layer again: the same output, kept tensors and gradients, but no update."""
    layer, batch = made(make), (torch.randn(shape), torch.randn(shape))
    step(layer, *batch)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    kept: list[list[torch.Size]] = []
    found = []
    for paused in (True, False):
        shapes: list[torch.Size] = []
        with (
            geonorm.ops.pause_statistics() if paused else contextlib.nullcontext(),
            torch.autograd.graph.saved_tensors_hooks(lambda t, s=shapes: (s.append(t.shape), t)[1], lambda t: t),
        ):
            found.append(step(layer, *batch)[: 2 + len(list(layer.parameters()))])
        if paused:
            for name, buffer in layer.named_buffers():
                assert torch.equal(buffer, before[name]), name
        kept.append(shapes)
    assert_equal(*found)
    assert kept[0] == kept[1] != []
    assert len(repeats) == 3


@every
def test_layouts(make: Callable[[], nn.Module], shape: tuple[int, ...], repeats: list[torch.Size]) -> None:
    """Same shape, another order in memory: decided afresh, with the same result."""
    layer, x, grad = made(make), torch.randn(shape), torch.randn(shape)
    other = copy.deepcopy(layer)
    step(layer, x, grad), step(other, x, grad)
    turned = x.mT.contiguous().mT
    found, wanted = step(layer, turned, grad.mT.contiguous().mT), step(other, x, grad)
    torch.testing.assert_close(found, wanted)


@every
def test_second_derivatives(
    make: Callable[[], nn.Module], shape: tuple[int, ...], repeats: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = made(make)
    alone, x = copy.deepcopy(layer), torch.randn(shape, requires_grad=True)

    def second(layer: nn.Module) -> list[Tensor | None]:
        inputs = [x, *layer.parameters()]
        first = torch.autograd.grad(layer(x).pow(3).sum(), inputs, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), inputs, allow_unused=True))

    found = second(layer)
    assert repeats
    monkeypatch.setattr(type(alone), "_may_repeat", lambda self: False)
    torch.testing.assert_close(found, second(alone))


@every
def test_batched_gradients(make: Callable[[], nn.Module], shape: tuple[int, ...], repeats: list[torch.Size]) -> None:
    layer = made(make).double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y, grads = layer(x), torch.randn(3, *shape, dtype=torch.float64)
    (batched,) = torch.autograd.grad(y, x, grads, retain_graph=True, is_grads_batched=True)
    for found, grad in zip(batched, grads, strict=True):
        torch.testing.assert_close(found, torch.autograd.grad(y, x, grad, retain_graph=True)[0])
    assert repeats


CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "an option": lambda layer: setattr(layer, "eps", 0.5),
    "the exponent": lambda layer: setattr(layer, "phi_start", 1.25),
    "momentum": lambda layer: setattr(layer, "momentum", 0.7),
    "no momentum": lambda layer: setattr(layer, "momentum", None),
    "the weight": lambda layer: setattr(layer, "weight", nn.Parameter(torch.full((5,), 2.0))),
    "the weight's data": lambda layer: setattr(layer.weight, "data", torch.arange(10.0)[::2]),
    "a buffer": lambda layer: setattr(layer, "running_mean", torch.full((5,), 7.0)),
    "a buffer's data": lambda layer: setattr(layer.running_var, "data", torch.arange(10.0)[::2]),
    "evaluation": lambda layer: layer.eval(),
    "no weight": lambda layer: setattr(layer, "weight", None),
    "a frozen weight": lambda layer: layer.weight.requires_grad_(False),
    "the spread": lambda layer: setattr(layer, "spread", "mean_abs"),
    "what torch's tools write": lambda layer: layer.running_mean.fill_(3.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_between_calls_counts(change: Callable[[nn.Module], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = made(lambda: geonorm.AugBatchNorm1d(5))
    alone = copy.deepcopy(layer)
    x, grad = torch.randn(12, 5), torch.randn(12, 5)
    first = [step(layer, x, grad)]
    change(layer)
    found = first + [step(layer, x, grad) for _ in range(2)]
    monkeypatch.setattr(geonorm.AugBatchNorm1d, "_may_repeat", lambda self: False)
    wanted = [step(alone, x, grad)]
    change(alone)
    wanted += [step(alone, x, grad) for _ in range(2)]
    for mine, single in zip(found, wanted, strict=True):
        assert_equal(mine, single)


def test_half_precision_after_float32() -> None:
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    layer(x)
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    assert layer(x).dtype == torch.float32


def test_paused_statistics_stay() -> None:
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5, guard=3.0)), torch.randn(12, 5)
    layer(x)
    before = [buffer.clone() for buffer in layer.buffers()]
    with geonorm.no_stat_update():
        layer(x)
    assert_equal(list(layer.buffers()), before)
    layer(x)
    assert int(layer.num_batches_tracked) == 2


def test_another_backend_is_asked(repeats: list[torch.Size]) -> None:
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    layer(x)
    with using_backend("torch"):
        y = layer(x)
    assert len(repeats) == 1
    torch.testing.assert_close(y, layer(x))


def test_replaced_parameters() -> None:
    """As torch.func.functional_call does it."""
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    plain = layer(x)
    doubled = {name: 2 * value.detach() for name, value in layer.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(layer, doubled, (x,)), 2 * plain)
    torch.testing.assert_close(layer(x), plain)


def test_parametrized() -> None:
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    plain = layer(x)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
    found = layer(x)
    torch.testing.assert_close(found - layer.bias, 2 * (plain - layer.bias))


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_refused_data() -> None:
    """Values that the kernels refuse run on torch, like those of a single call."""
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    layer(x)
    huge = (x * 1e30).requires_grad_()
    y = layer(huge)
    with using_backend("torch"):
        torch.testing.assert_close(y, copy.deepcopy(layer)(huge))
    y.sum().backward()


def test_not_part_of_the_layer() -> None:
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    before, keys = pickle.dumps(layer), list(layer.state_dict())
    layer(x)
    copied = copy.deepcopy(layer)
    assert not [name for name in vars(copied) if "known" in name]
    assert len(pickle.dumps(layer)) == len(before)
    assert list(layer.state_dict()) == keys
    torch.testing.assert_close(copied(x), layer(x))


def test_memory_is_bounded() -> None:
    layer = geonorm.AugBatchNorm1d(2)
    for samples in range(4, 40):
        layer(torch.randn(samples, 2))
    assert len(vars(layer)["_known_calls"]) <= 8


def test_compiled() -> None:
    layer, x = made(lambda: geonorm.AugBatchNorm1d(5)), torch.randn(12, 5)
    layer(x)
    compiled = torch.compile(copy.deepcopy(layer), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
