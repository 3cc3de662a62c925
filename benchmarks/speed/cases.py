"""What is measured: one case per kind of work and shape. Nothing is built before it is asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from geonorm import nn as ours
from geonorm.lab.models import resnet20
from geonorm.ops import using_backend
from studies.models.newton import NewtonNorm

from .peers import Clone, MedianNorm
from .timing import inference, saved_bytes, step, training_step

Layer: TypeAlias = Callable[..., Any]
Shape: TypeAlias = tuple[int, ...]
Inputs: TypeAlias = tuple[Any, ...]

IMAGES: list[Shape] = [(128, 64, 32, 32), (128, 512, 4, 4), (128, 16, 32, 32), (32, 256, 56, 56)]
LARGE_MAPS, SMALL_MAPS = IMAGES[0], IMAGES[1]
FEATURES: list[Shape] = [(4096, 64), (2048, 64), (512, 512)]
FEW_SAMPLES: Shape = (128, 64)
TOKENS: list[Shape] = [(64, 128, 384), (8, 128, 768), (4096, 256)]
NATIVE, TORCH, COMPILED = "geonorm", "geonorm on torch", "geonorm compiled"
CALL = "geonorm, a few values"  # what a call costs beside the work on the values
PEERS = ("published recipe", "median by torch", "GroupNorm", "clone")

OPTIONS: dict[str, dict[str, Any]] = {
    "φ=1.5": {"phi": 1.5},
    "φ learned": {"learn_phi": True},
    "robust spread": {"spread": "robust"},
    "guard": {"phi": 2.0, "guard": 3.0},  # guardbn
    "median": {"phi": 1.0},
}

# Tensors that an algorithm has to move from and to memory, whatever the cache keeps. Forward reads x and writes y;
# backward reads x and the gradient of y and writes the gradient of x. A guard reads x once more, for the moments of
# every sample.
FORWARD, BACKWARD, GUARD = 2, 3, 1


class Provider(NamedTuple):
    """How to build one of the layers that are compared, and on which backend it runs."""

    make: Callable[[], Layer]
    backend: str = "auto"
    compiled: bool = False


class Case(NamedTuple):
    """One comparison.

    Attributes:
        row: the kind of work; cases of a row are summed up by their geometric mean.
        name: the shape.
        inputs: makes the arguments of the layers.
        providers: by name; the first is the baseline.
        start: from a layer and its arguments to the call that is timed.
        moved: bytes that forward and backward have to move; 0 if not counted.
    """

    row: str
    name: str
    inputs: Callable[[], Inputs]
    providers: dict[str, Provider]
    start: Callable[..., Callable[[], object]] = step
    moved: int = 0

    def only(self, names: Sequence[str]) -> Case:
        """With these of its providers."""
        return self._replace(providers={name: self.providers[name] for name in names if name in self.providers})

    def work(self, device: str = "cpu") -> tuple[dict[str, Callable[[], object]], dict[str, int]]:
        """The calls to time on a device, and the bytes that each keeps for backward."""
        torch.manual_seed(0)
        inputs = tuple(_moved(value, device) for value in self.inputs())
        calls, kept = {}, {}
        for name, provider in self.providers.items():
            layer = provider.make()
            if isinstance(layer, nn.Module):
                layer.to(device)
            of = few(inputs) if name == CALL else inputs
            if self.start is step and name in (next(iter(self.providers)), NATIVE):
                kept[name] = saved_bytes(layer, *of)
            if provider.compiled:
                torch._dynamo.reset()
                layer = torch.compile(layer)
            calls[name] = _on(provider.backend, self.start(layer, *of))
        return calls, kept


def _moved(value: Any, device: str) -> Any:
    """An argument of a layer on a device; a leaf of the graph stays one."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(device).requires_grad_(value.requires_grad)


def few(inputs: Inputs) -> Inputs:
    """The same arguments with as few values as the layer takes."""
    x = inputs[0].detach()
    if len(inputs) == 3:  # nodes of graphs, the graph of each, the number of graphs
        some = x[:4].clone()
        return some.requires_grad_(), torch.tensor([0, 0, 1, 1], device=x.device), 2
    x = x[:4, :, :1, :2] if x.dim() == 4 else x[:4, :1] if x.dim() == 3 else x[:4]
    return (x.clone().requires_grad_(inputs[0].requires_grad),)


def cases(full: bool) -> Iterator[Case]:
    """All cases, or a few for a quick look."""
    images = IMAGES if full else [SMALL_MAPS]
    for what, options in OPTIONS.items():
        if what != "median":
            for shape in images:
                yield _batch_norm(f"BatchNorm2d, {what}", shape, options, full)
    for shape in images:
        yield _over_torch("PopNorm2d", shape, nn.BatchNorm2d, ours.PopNorm2d, shape[1])
    for what, options in OPTIONS.items():
        if what != "median":
            for shape in FEATURES if full else FEATURES[:1]:
                yield _batch_norm(f"BatchNorm1d, {what}", shape, options, full)
            yield _batch_norm(f"BatchNorm1d, {what}, {FEW_SAMPLES}", FEW_SAMPLES, options, full)
    for shape in TOKENS if full else TOKENS[:1]:
        yield _over_torch("LayerNorm, φ=1.5", shape, nn.LayerNorm, ours.AugLayerNorm, shape[-1])
    for shape in (LARGE_MAPS, SMALL_MAPS) if full else (SMALL_MAPS,):
        yield _over_torch("GroupNorm, φ=1.5", shape, nn.GroupNorm, ours.AugGroupNorm, 32, shape[1])
        yield _over_torch("InstanceNorm2d, φ=1.5", shape, nn.InstanceNorm2d, ours.AugInstanceNorm2d, shape[1])
    if importlib.util.find_spec("torch_geometric"):
        yield _graphs()
    for shape in (LARGE_MAPS, SMALL_MAPS) if full else (SMALL_MAPS,):
        yield _variant("channels_last, φ=1.5", shape, memory=torch.channels_last)
        yield _variant("bfloat16, φ=1.5", shape, dtype=torch.bfloat16)
        yield _variant("bfloat16, channels_last, φ=1.5", shape, dtype=torch.bfloat16, memory=torch.channels_last)
        yield _batch_norm("BatchNorm2d, median", shape, OPTIONS["median"], full)
        yield _variant("evaluation, φ=1.5", shape, evaluated=True)
    for shape in FEATURES[:2] if full else FEATURES[:1]:
        yield _batch_norm("BatchNorm1d, median", shape, OPTIONS["median"], full)
    yield from _networks(full)


def _batch_norm(row: str, shape: Shape, options: dict[str, Any], full: bool) -> Case:
    flat: tuple[Any, Any] = (nn.BatchNorm1d, ours.AugBatchNorm1d)
    twin, layer = flat if len(shape) == 2 else (nn.BatchNorm2d, ours.AugBatchNorm2d)

    def make() -> Layer:
        made = layer(shape[1], **options)
        if made.phi_offset is not None:  # as after some training: at its start φ is 1.5, which has a short form
            nn.init.normal_(made.phi_offset, 0.0, 0.3)
        return made

    case = _over_torch(row, shape, twin, make, passes=FORWARD + BACKWARD + GUARD * ("guard" in options))
    more: dict[str, Provider] = {}
    if shape in (LARGE_MAPS, SMALL_MAPS, IMAGES[2], FEATURES[0], FEW_SAMPLES) and "median" not in row:
        more[TORCH] = Provider(make, "torch")
    if row == "BatchNorm2d, φ=1.5" and full and shape in (SMALL_MAPS, IMAGES[2]):
        more[COMPILED] = Provider(make, "torch", compiled=True)
        makers: list[Callable[[], Layer]] = [
            lambda: NewtonNorm(shape[1]),
            lambda: MedianNorm(shape[1]),
            lambda: nn.GroupNorm(min(32, shape[1]), shape[1]),
            Clone,
        ]
        more |= {name: Provider(maker) for name, maker in zip(PEERS, makers, strict=True)}
    return case._replace(providers=case.providers | more)


def _over_torch(
    row: str,
    shape: Shape,
    twin: Callable[..., Layer],
    layer: Callable[..., Layer],
    *arguments: int,
    passes: int = FORWARD + BACKWARD,
) -> Case:
    """A layer over torch's; the twin takes the number of channels where no arguments are given."""
    providers = {
        "torch": Provider(lambda: twin(*arguments or (shape[1],))),
        NATIVE: Provider(lambda: layer(*arguments)),
        CALL: Provider(lambda: layer(*arguments)),
    }
    values = torch.Size(shape).numel()
    return Case(row, str(shape), lambda: (torch.randn(shape).requires_grad_(),), providers, moved=passes * 4 * values)


def _graphs() -> Case:
    from torch_geometric.nn import GraphNorm

    def inputs() -> Inputs:
        batch = torch.repeat_interleave(torch.arange(128), sizes)
        return torch.randn(len(batch), 64).requires_grad_(), batch, 128

    sizes = torch.randint(20, 61, (128,), generator=torch.Generator().manual_seed(0))
    providers = {
        "torch_geometric": Provider(lambda: GraphNorm(64)),
        NATIVE: Provider(lambda: ours.AugGraphNorm(64)),
        CALL: Provider(lambda: ours.AugGraphNorm(64)),
    }
    moved = (FORWARD + BACKWARD) * 4 * 64 * int(sizes.sum())
    return Case("GraphNorm, φ=1.5", "128 graphs of 20–60 nodes, 64 features", inputs, providers, moved=moved)


def _variant(
    row: str,
    shape: Shape,
    *,
    evaluated: bool = False,
    memory: torch.memory_format = torch.contiguous_format,
    dtype: torch.dtype = torch.float32,
) -> Case:
    def inputs() -> Inputs:
        return (torch.randn(shape, dtype=dtype).to(memory_format=memory).requires_grad_(not evaluated),)

    def changed(layer: nn.Module) -> nn.Module:
        return layer.to(dtype).train(not evaluated)

    providers = {
        "torch": Provider(lambda: changed(nn.BatchNorm2d(shape[1]))),
        NATIVE: Provider(lambda: changed(ours.AugBatchNorm2d(shape[1], phi=1.5))),
        CALL: Provider(lambda: changed(ours.AugBatchNorm2d(shape[1], phi=1.5))),
    }
    passes = FORWARD if evaluated else FORWARD + BACKWARD
    moved = passes * dtype.itemsize * torch.Size(shape).numel()
    return Case(row, str(shape), inputs, providers, inference if evaluated else step, moved)


def _networks(full: bool) -> Iterator[Case]:
    """A training step of ResNet-20."""
    batch = 128 if full else 32
    specs = {"φ=1.5": "augbn(phi=1.5)", "φ learned": "diffphi", "robust spread": "robustbn", "guard": "guardbn"}

    def inputs() -> Inputs:
        return torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))

    def step_with(norms: dict[str, Any]) -> dict[str, Provider]:
        return {name: Provider(partial(resnet20, norm)) for name, norm in norms.items()}

    for what, spec in specs.items():
        providers = step_with({"torch": "bn", NATIVE: spec})
        if full and what == "φ=1.5":
            providers[TORCH] = Provider(lambda: resnet20("augbn(phi=1.5)"), "torch")
        yield Case(f"ResNet-20 step, {what}", f"batch {batch}", inputs, providers, training_step)
    if full:
        eager = step_with({"torch": "bn", NATIVE: "guardbn"})
        providers = {name: provider._replace(compiled=True) for name, provider in eager.items()}
        yield Case("ResNet-20 step compiled, guard", f"batch {batch}", inputs, providers, training_step)


def _on(backend: str, call: Callable[[], object]) -> Callable[[], object]:
    if backend == "auto":
        return call

    def run() -> None:
        with using_backend(backend):
            call()

    return run


class Growth(NamedTuple):
    """One size of a growth sweep.

    Attributes:
        along: what grows: ``"m"``, values per channel, or ``"C"``, channels.
        shape: of the input.
        call: forward and backward of AugBatchNorm1d, φ=1.5.
    """

    along: str
    shape: tuple[int, int, int]
    call: Callable[[], object]


def growth(full: bool, device: str = "cpu") -> Iterator[Growth]:
    """Sizes over which the cost should grow in proportion, with channels that fit the cache and some that do not."""
    top = 24 if full else 20
    for power in range(12, top + 1, 2):
        yield _grown("m", (4, 16, 1 << (power - 6)), device)
    for power in range(12, top + 1, 2):
        yield _grown("C", (4, 1 << (power - 10), 256), device)


def _grown(along: str, shape: tuple[int, int, int], device: str) -> Growth:
    torch.manual_seed(0)
    x: Tensor = torch.randn(shape).to(device).requires_grad_()
    return Growth(along, shape, step(ours.AugBatchNorm1d(shape[1], phi=1.5).to(device), x))
