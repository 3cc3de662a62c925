"""What is measured: one case per kind of work and shape, with the ratio to reach."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from geonorm import nn as ours
from geonorm.lab.models import resnet20
from geonorm.ops import using_backend
from studies.models.newton import NewtonNorm

from .peers import Clone, MedianNorm
from .timing import saved_bytes, step

Layer: TypeAlias = Callable[..., Tensor]

IMAGES: list[tuple[int, ...]] = [(128, 64, 32, 32), (128, 512, 4, 4), (128, 16, 32, 32), (32, 256, 56, 56)]
GUARDED: dict[str, Any] = {"phi": 2.0, "guard": 3.0}  # guardbn
NATIVE, TORCH, COMPILED = "geonorm", "geonorm on torch", "geonorm compiled"


class Case(NamedTuple):
    """One comparison.

    Attributes:
        row: the kind of work; cases of a row are summed up by their geometric mean.
        name: the shape.
        work: provider to call; the first is the baseline.
        kept: provider to the bytes that it keeps for backward.
        target: the ratio to reach for ``NATIVE``; None if there is none.
    """

    row: str
    name: str
    work: dict[str, Callable[[], object]]
    kept: dict[str, int]
    target: float | None

    def against_torch(self) -> Case:
        """The baseline and the layer alone."""
        first = next(iter(self.work))
        return self._replace(work={name: self.work[name] for name in (first, NATIVE)})


class _Made(NamedTuple):
    """A provider before it is run: how to build its layer, and on which backend."""

    make: Callable[[], Layer]
    backend: str = "auto"
    compiled: bool = False


def cases(full: bool) -> Iterator[Case]:
    """All cases, one at a time; the tensors of one are gone when the next begins."""
    images: list[tuple[int, ...]] = IMAGES if full else IMAGES[1:2]
    for shape in images:
        channels = shape[1]
        peers = _peers(channels) if full and shape != IMAGES[3] else {"clone": _Made(Clone)}
        yield _layers("BatchNorm2d, φ=1.5", shape, nn.BatchNorm2d, _ours("AugBatchNorm2d", shape, phi=1.5), peers, 0.70)
    for shape in images:
        yield _layers(
            "BatchNorm2d, φ learned", shape, nn.BatchNorm2d, _ours("AugBatchNorm2d", shape, learn_phi=True), {}, 0.95
        )
    for shape in images:
        yield _layers(
            "BatchNorm2d, robust spread",
            shape,
            nn.BatchNorm2d,
            _ours("AugBatchNorm2d", shape, spread="robust"),
            {},
            1.2,
        )
    for shape in images:
        yield _layers("BatchNorm2d, guard", shape, nn.BatchNorm2d, _ours("AugBatchNorm2d", shape, **GUARDED), {}, 0.75)
    for shape in images:
        yield _layers("PopNorm2d", shape, nn.BatchNorm2d, _ours("PopNorm2d", shape), {}, 0.9)
    features: list[tuple[list[tuple[int, ...]], str, float, float, float]] = [
        ([(4096, 64), (2048, 64)], "features", 1.3, 1.8, 1.2),
        ([(128, 64)], "small", 1.5, 1.9, 1.5),
    ]
    for shapes, what, fixed, learned, guarded in features:
        for shape in shapes if full else shapes[:1]:
            make = _ours("AugBatchNorm1d", shape, phi=1.5)
            yield _layers(f"BatchNorm1d, φ=1.5, {what}", shape, nn.BatchNorm1d, make, {}, fixed)
            make = _ours("AugBatchNorm1d", shape, learn_phi=True)
            yield _layers(f"BatchNorm1d, φ learned, {what}", shape, nn.BatchNorm1d, make, {}, learned)
            make = _ours("AugBatchNorm1d", shape, **GUARDED)
            yield _layers(f"BatchNorm1d, guard, {what}", shape, nn.BatchNorm1d, make, {}, guarded)
    yield from _other_axes(full)
    if importlib.util.find_spec("torch_geometric"):
        yield _graphs()
    for shape in images[:2]:
        yield _variant("evaluation", shape, 1.05, lambda layer: layer.eval(), grad=False)
        yield _variant("channels_last", shape, 1.2, lambda layer: layer, memory=torch.channels_last)
        yield _variant("bfloat16", shape, 1.2, lambda layer: layer.bfloat16(), dtype=torch.bfloat16)
    yield from _networks(full)


def _ours(name: str, shape: tuple[int, ...], **options: Any) -> Callable[[], Layer]:
    def make() -> Layer:
        layer = getattr(ours, name)(shape[1], **options)
        if layer.learn_phi:  # as after some training: at its start φ is 1.5, which has a short form
            nn.init.normal_(layer.phi_offset, 0.0, 0.3)
        return layer  # type: ignore[no-any-return]

    return make


def _peers(channels: int) -> dict[str, _Made]:
    return {
        "published recipe": _Made(lambda: NewtonNorm(channels)),
        "median by torch": _Made(lambda: MedianNorm(channels)),
        "GroupNorm": _Made(lambda: nn.GroupNorm(min(32, channels), channels)),
        "clone": _Made(Clone),
    }


def _case(row: str, name: str, providers: dict[str, _Made], target: float | None, inputs: tuple[Any, ...]) -> Case:
    work: dict[str, Callable[[], object]] = {}
    kept: dict[str, int] = {}
    for provider, made in providers.items():
        layer = made.make()
        kept[provider] = saved_bytes(layer, *inputs)
        if made.compiled:
            torch._dynamo.reset()
            layer = torch.compile(layer)
        work[provider] = _on(made.backend, step(layer, *inputs))
    return Case(row, name, work, kept, target)


def _on(backend: str, call: Callable[[], object]) -> Callable[[], object]:
    if backend == "auto":
        return call

    def run() -> None:
        with using_backend(backend):
            call()

    return run


def _layers(
    row: str,
    shape: tuple[int, ...],
    twin: Callable[[int], nn.Module],
    make: Callable[[], Layer],
    peers: dict[str, _Made],
    target: float,
) -> Case:
    torch.manual_seed(0)
    x = torch.randn(shape).requires_grad_()
    providers = {"torch": _Made(lambda: twin(shape[1])), NATIVE: _Made(make)}
    if "published recipe" in peers:
        providers |= {TORCH: _Made(make, "torch"), COMPILED: _Made(make, "torch", compiled=True)}
    elif row.startswith("BatchNorm"):
        providers |= {TORCH: _Made(make, "torch")}
    return _case(row, str(shape), {**providers, **peers}, target, (x,))


def _other_axes(full: bool) -> Iterator[Case]:
    torch.manual_seed(0)
    twins: list[tuple[str, tuple[int, ...], Callable[[], Layer], Callable[[], Layer]]] = [
        ("LayerNorm", (64, 128, 384), lambda: nn.LayerNorm(384), lambda: ours.AugLayerNorm(384)),
        ("GroupNorm", (64, 64, 32, 32), lambda: nn.GroupNorm(32, 64), lambda: ours.AugGroupNorm(32, 64)),
        ("InstanceNorm2d", (64, 64, 32, 32), lambda: nn.InstanceNorm2d(64), lambda: ours.AugInstanceNorm2d(64)),
    ]
    for row, shape, twin, make in twins:
        x = torch.randn(shape).requires_grad_()
        yield _case(f"{row}, φ=1.5", str(shape), {"torch": _Made(twin), NATIVE: _Made(make)}, 1.6, (x,))


def _graphs() -> Case:
    from torch_geometric.nn import GraphNorm

    torch.manual_seed(0)
    sizes = torch.randint(20, 61, (128,))
    batch = torch.repeat_interleave(torch.arange(128), sizes)
    x = torch.randn(len(batch), 64).requires_grad_()
    providers = {"torch_geometric": _Made(lambda: GraphNorm(64)), NATIVE: _Made(lambda: ours.AugGraphNorm(64))}
    return _case("GraphNorm, φ=1.5", "128 graphs of 20–60 nodes, 64 features", providers, 1.0, (x, batch, 128))


def _variant(
    row: str,
    shape: tuple[int, ...],
    target: float,
    change: Callable[[Any], Any],
    *,
    grad: bool = True,
    memory: torch.memory_format = torch.contiguous_format,
    dtype: torch.dtype = torch.float32,
) -> Case:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype).to(memory_format=memory).requires_grad_(grad)
    layers = {"torch": nn.BatchNorm2d(shape[1]), NATIVE: ours.AugBatchNorm2d(shape[1], phi=1.5)}
    changed = {name: change(layer) for name, layer in layers.items()}
    if grad:
        return _case(row, str(shape), {name: _Made(lambda c=c: c) for name, c in changed.items()}, target, (x,))  # type: ignore[misc]

    def forward(layer: Layer) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                layer(x)

        return run

    return Case(row, str(shape), {name: forward(layer) for name, layer in changed.items()}, {}, target)


def _networks(full: bool) -> Iterator[Case]:
    """A training step of ResNet-20."""
    specs = {"torch": "bn", NATIVE: "augbn(phi=1.5)"}
    if full:
        specs["no norm"] = "none"
    yield _network("ResNet-20 step, φ=1.5", specs, 0.95, full)
    yield _network("ResNet-20 step, φ learned", {"torch": "bn", NATIVE: "diffphi"}, 1.02, full)
    yield _network("ResNet-20 step, guard", {"torch": "bn", NATIVE: "guardbn"}, 1.0, full)
    if full:
        yield _network("ResNet-20 step compiled, guard", {"torch": "bn", NATIVE: "guardbn"}, 1.05, full, compiled=True)


def _network(row: str, specs: dict[str, str], target: float, full: bool, compiled: bool = False) -> Case:
    torch.manual_seed(0)
    batch = 128 if full else 32
    x, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    work = {name: _training_step(resnet20(spec), x, labels, compiled) for name, spec in specs.items()}
    if full and "φ=1.5" in row:
        work[TORCH] = _on("torch", _training_step(resnet20("augbn(phi=1.5)"), x, labels))
        work["published recipe"] = _training_step(resnet20(NewtonNorm), x, labels)
    return Case(row, f"batch {batch}", work, {}, target)


def _training_step(model: nn.Module, x: Tensor, labels: Tensor, compiled: bool = False) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    if compiled:
        model = torch.compile(model, fullgraph=True)  # type: ignore[assignment]

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

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


def growth(full: bool) -> Iterator[Growth]:
    """Sizes over which the cost should grow in proportion, with channels that fit the cache and some that do not."""
    top = 24 if full else 20
    for power in range(12, top + 1, 2):
        yield _grown("m", (4, 16, 1 << (power - 6)))
    for power in range(12, top + 1, 2):
        yield _grown("C", (4, 1 << (power - 10), 256))


def _grown(along: str, shape: tuple[int, int, int]) -> Growth:
    torch.manual_seed(0)
    x = torch.randn(shape).requires_grad_()
    return Growth(along, shape, step(ours.AugBatchNorm1d(shape[1], phi=1.5), x))
