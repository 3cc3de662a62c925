"""One look at a running network: what reaches each norm, each pair of operation and norm, and each ReLU."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..nn._pop import PopLayer
from ..surgery.freeze import is_frozen
from ..surgery.gauge import shadow_of
from ..surgery.pairs import Graph, is_operation, trace
from ..surgery.progress import progress
from ..surgery.recalibrate import call_model, input_of
from .axes import axes_of, rows_of
from .effective import Effective, effective_weights
from .moments import Moments
from .observe import Forward, filled_batches, measure_each_batch, norms_of, uncompiled, undisturbed
from .pairing import could_share_channels, dimensions_of_channels, without_pairs

_RELUS = {nn.functional.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, nn.functional.relu6}
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm)
_ROWS_KEPT = 8192
_BY_CHANNEL = ("batch", "instance", "group")  # norms whose channels may be the outputs of an operation


@dataclass
class NormReading:
    """What one norm did with the batches.

    Attributes:
        name: its name in the model, ``"(model)"`` if it is the model.
        norm: the layer.
        axes: over which values it measures, see ``axes.axes_of``.
        calls: how often it ran.
        sizes: of each call, how many values went into one sphere.
        moments: of its input, by channel; for batch norms only.
        variances: of the rows (spheres), as many as are kept.
        radii: rms of the normalized rows before γ and β: 1 on the sphere.
        along: |mean| / rms of the normalized rows: the cosine of their angle to e.
        after: name of the norm whose output is its input, unchanged; empty if it is another's.
        effective: weights of the operation before it and the norm as one; ``None`` if there is no such pair.
        bad: where NaN or Inf was met: ``""``, ``"input"`` or ``"output"``.
        unread: why its input could not be made sense of; empty if it could.
    """

    name: str
    norm: nn.Module
    axes: str | None
    calls: int = 0
    sizes: list[int] = field(default_factory=list)
    moments: Moments = field(default_factory=Moments)
    variances: list[Tensor] = field(default_factory=list)
    radii: list[Tensor] = field(default_factory=list)
    along: list[Tensor] = field(default_factory=list)
    after: str = ""
    effective: Effective | None = None
    bad: str = ""
    unread: str = ""

    @property
    def values(self) -> int:
        """How many values go into one sphere, typically: the last batch of an epoch may be short."""
        return sorted(self.sizes)[len(self.sizes) // 2] if self.sizes else 0


@dataclass
class ReluReading:
    """Which channels of a ReLU's output were ever above 0."""

    name: str
    by_norm: bool
    alive: Tensor
    samples: int


@dataclass
class Readings:
    """What one pass over the batches showed.

    Attributes:
        norms: by name, also those that never ran.
        relus: by the name of the layer in front of them.
        samples: how many samples there were, counted along dimension 0 of what reaches the first norm or operation.
        batches: how many batches.
        graph: norms with their neighbours, from tracing; without operations whose outputs are not the norm's channels.
        failure: what the model raised, and where; empty if it ran.
        bad_data: whether NaN or Inf was in the batches themselves.
    """

    norms: dict[str, NormReading]
    relus: dict[str, ReluReading]
    samples: int
    batches: int
    graph: Graph
    failure: str = ""
    bad_data: bool = False


def read(model: nn.Module, batches: Iterable[Any], forward: Forward | None = None, *, strict: bool = True) -> Readings:
    """Run the batches through a model whose norms measure each batch; ``strict`` raises what the model raises."""
    graph = trace(model)
    watch = _Watch(model, graph)
    found = watch.found
    with undisturbed(model), torch.no_grad(), uncompiled():
        measure_each_batch(model)
        watch.attach()
        for batch in progress(filled_batches(batches), "reading"):
            found.bad_data = found.bad_data or _has_bad_values(batch)
            try:
                with watch:
                    (forward or call_model)(model, batch)
            except Exception as error:  # the model's own code may raise anything
                if strict or isinstance(error, TypeError):
                    raise
                where = f" in {watch.inside[-1]}" if watch.inside else ""
                found.failure = f"{type(error).__name__}{where}: {error}".split("\n", 1)[0]
                break
            found.batches += 1
    found.graph = without_pairs(graph, watch.apart)
    return found


def _has_bad_values(batch: Any) -> bool:
    x = input_of(batch)
    return isinstance(x, Tensor) and x.is_floating_point() and not bool(x.isfinite().all())


class _Watch(TorchFunctionMode):
    """Hooks on norms and operations; as a mode it also sees ReLUs that are mere function calls."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        super().__init__()
        self.model = model
        self.inside: list[str] = []  # the modules that are running
        self.found = Readings(
            {name: NormReading(name or "(model)", norm, axes_of(norm)) for name, norm in norms_of(model).items()},
            {},
            0,
            0,
            graph,
        )
        modules = dict(model.named_modules())
        self._operation_of = {name: modules[near.before] for name, near in graph.norms.items() if near.before}
        self.apart: set[str] = set()  # norms over other axes than the outputs of the operation before them
        self._inputs: dict[int, Tensor] = {}
        self._made_by: dict[int, tuple[weakref.ref[Tensor], int, str]] = {}
        self._counted = False
        self._relu_calls: dict[str, int] = {}
        self._channels_last: dict[torch.Size, bool] = {}  # by shape of an output

    def attach(self) -> None:
        """Put the hooks on; ``undisturbed`` takes them off."""
        paired = {id(operation) for operation in self._operation_of.values()}
        for name, module in self.model.named_modules():
            module.register_forward_pre_hook(self._enter(name))
            if id(module) in paired:
                module.register_forward_pre_hook(self._keep_input)
            if name in self.found.norms:
                module.register_forward_pre_hook(self._before_norm(self.found.norms[name]), with_kwargs=True)
            module.register_forward_hook(self._leave(name))

    def __enter__(self) -> Any:
        self.inside.clear()
        self._relu_calls.clear()
        self._counted = False
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _RELUS or not args:
            return func(*args, **(kwargs or {}))
        maker = self._maker_of(args[0])
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dim() >= 2 and out.numel():
            self._see_relu(maker, out)
        return out

    def _maker_of(self, x: Tensor) -> str:
        """The module that gave this tensor, if nothing has changed it in place since."""
        reference, version, name = self._made_by.get(id(x), (None, 0, ""))
        return name if reference is not None and reference() is x and x._version == version else ""

    def _see_relu(self, maker: str, out: Tensor) -> None:
        here = self.inside[-1] if self.inside else "(model)"
        self._relu_calls[here] = self._relu_calls.get(here, 0) + 1
        number = self._relu_calls[here]
        name = maker or (f"{here}, ReLU {number}" if number > 1 else here)
        module = self.model.get_submodule(maker) if maker else None
        # Behind a sum there is no such module: the last one that gave this shape says where its channels are.
        unknown = self._channels_last.get(out.shape, out.dim() == 3)
        last = unknown if module is None else isinstance(module, _CHANNELS_LAST)
        alive = (~(out <= 0)).movedim(-1 if last else 1, 0).flatten(1).any(1).cpu()
        before = self.found.relus.get(name)
        if before is None:
            self.found.relus[name] = ReluReading(name, maker in self.found.norms, alive, out.shape[0])
        elif before.alive.shape == alive.shape:
            before.alive |= alive
            before.samples += out.shape[0]

    def _enter(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.inside.append(name or "(model)")
            if not self._counted and inputs and isinstance(inputs[0], Tensor) and inputs[0].dim():
                self.found.samples += inputs[0].shape[0]
                self._counted = True

        return hook

    def _leave(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self.inside.pop()
            if isinstance(output, Tensor):
                if is_operation(module) or name in self.found.norms:
                    self._channels_last[output.shape] = isinstance(module, _CHANNELS_LAST)
                if not self._maker_of(output):  # a container, or a module that does nothing, has not made it
                    self._made_by[id(output)] = weakref.ref(output), output._version, name
                reading = self.found.norms.get(name)
                if reading is not None and not reading.bad and not bool(output.isfinite().all()):
                    reading.bad = "output"

        return hook

    def _keep_input(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            self._inputs[id(module)] = inputs[0]

    def _before_norm(self, reading: NormReading) -> Any:
        def hook(norm: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = inputs[0] if inputs else kwargs.get("input")
            reading.calls += 1
            if isinstance(x, Tensor) and x.numel() and x.dim() > 1:
                options: dict[str, Any] = {key: kwargs[key] for key in ("mask", "weight") if key in kwargs}
                try:
                    self._read_norm(reading, norm, x, options)
                except Exception as error:  # if the input is at fault, the norm itself will say so
                    reading.unread = f"{type(error).__name__}: {error}".split("\n", 1)[0]

        return hook

    def _read_norm(self, reading: NormReading, norm: nn.Module, x: Tensor, options: dict[str, Any]) -> None:
        maker = self._maker_of(x)
        if maker in self.found.norms and maker != reading.name:
            reading.after = maker
        if not bool(x.isfinite().all()):
            reading.bad = reading.bad or "input"
        if reading.axes is None or reading.bad:
            return
        rows = rows_of(norm, x).double()
        reading.sizes.append(rows.shape[1])
        if rows.shape[1] == 1:
            return
        if reading.axes == "batch":
            reading.moments.add(rows)
        operation = self._operation_of.get(reading.name)
        given = None if operation is None else self._inputs.get(id(operation))
        if operation is not None and given is not None and reading.axes in _BY_CHANNEL:
            by_row = could_share_channels(operation, norm) and given.dim() == dimensions_of_channels(operation)
            self.apart |= set() if by_row else {reading.name}
        if is_frozen(norm):
            return
        with torch.random.fork_rng():
            normalized = rows_of(norm, normalizer(norm)(x.double(), **options)).double()
        self._see_rows(reading, rows, normalized)
        first = reading.effective is None and reading.axes == "batch" and reading.name not in self.apart
        if operation is not None and given is not None and first:
            reading.effective = effective_weights(operation, norm, given, rows, normalized)

    def _see_rows(self, reading: NormReading, rows: Tensor, normalized: Tensor) -> None:
        if sum(len(part) for part in reading.radii) >= _ROWS_KEPT:
            return
        most = slice(0, _ROWS_KEPT)
        square = normalized.square().mean(1)
        mean = normalized.mean(1)
        reading.variances.append(rows.var(1, correction=0)[most].cpu())
        reading.radii.append(square.sqrt()[most].cpu())
        reading.along.append((mean.abs() / square.sqrt().clamp_min(1e-300))[most].cpu())


def normalizer(norm: nn.Module) -> Any:
    """A copy of a norm in float64 that gives the normalized values alone: γ = 1 and, outside the division, β = 0."""
    copied = shadow_of(norm).double()
    with torch.no_grad():
        if isinstance(getattr(copied, "weight", None), Tensor):
            copied.weight.fill_(1.0)
        if isinstance(getattr(copied, "bias", None), Tensor) and not isinstance(norm, PopLayer):
            copied.bias.zero_()
    return copied
