"""One pass of batches through a model whose norms use batch statistics, with hooks that measure everything."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..introspect.axes import axes_of, rows_of
from ..introspect.graph import Graph, is_linear, is_operation, trace
from ..introspect.layouts import is_frozen
from ..introspect.lineage import Lineage, Origin
from ..introspect.observe import (
    Forward,
    call_model,
    filled_batches,
    input_of,
    measure_each_batch,
    norms_of,
    random_state_restored,
    state_restored,
    uncompiled,
)
from ..introspect.progress import progress
from ..introspect.shared_channels import could_share_channels, dimensions_of_channels, without_pairs
from ..nn._pop import PopLayer
from ..surgery.stat_accumulator import measuring_copy
from .behaviour import answer_of
from .effective import effective_weights
from .readings import BatchMeans, BoundedReading, Call, NormReading, Readings, ReluReading, SumReading, read_input

_RELUS = {"relu", "relu_", "relu6"}
_BOUNDED = {"sigmoid", "sigmoid_", "tanh", "tanh_"}
_ADDS = {"add", "add_", "__add__", "__radd__", "__iadd__"}
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.MultiheadAttention)
_ROWS_KEPT, _VALUES_KEPT = 8192, 4096
_BY_CHANNEL = ("batch", "instance", "group")  # norms whose channels may be the outputs of an operation


def read(
    model: nn.Module,
    batches: Iterable[Any],
    forward: Forward | None = None,
    *,
    strict: bool = True,
    spheres_once: bool = False,
) -> Readings:
    """Run the batches through a model whose norms use the statistics of each batch.

    With ``strict``, errors of the model are raised. ``spheres_once`` keeps normalized values of the first batch only.
    """
    graph = trace(model)
    watch = _Watch(model, graph, spheres_once)
    found = watch.found
    with state_restored(model), torch.no_grad(), uncompiled():
        measure_each_batch(model)
        watch.attach()
        for batch in progress(filled_batches(batches), "reading"):
            x = input_of(batch)
            if isinstance(x, Tensor) and x.is_floating_point() and not bool(x.isfinite().all()):
                found.bad_data = True
            elif isinstance(x, Tensor) and not found.batches:
                found.input = read_input(x)
            try:
                with watch:
                    given = (forward or call_model)(model, batch)
            except Exception as error:  # the model's code may raise anything
                if strict or isinstance(error, TypeError):
                    raise
                where = f" in {watch.inside[-1]}" if watch.inside else ""
                found.failure = f"{type(error).__name__}{where}: {error}".split("\n", 1)[0]
                break
            watch.finish(given)
            found.batches += 1
    found.graph = without_pairs(graph, watch.unpaired)
    return found


class _Watch(TorchFunctionMode):
    """Hooks on norms and operations; as a torch function mode it also sees plain function calls."""

    def __init__(self, model: nn.Module, graph: Graph, spheres_once: bool) -> None:
        super().__init__()
        self.model, self.spheres_once = model, spheres_once
        self.inside: list[str] = []  # the modules that are running
        norms = {name: NormReading(name or "(model)", norm, axes_of(norm)) for name, norm in norms_of(model).items()}
        self.found = Readings(norms, graph)
        modules = dict(model.named_modules())
        self._operation_of = {name: modules[near.before] for name, near in graph.norms.items() if near.before}
        self.unpaired: set[str] = set()  # norms whose channels are not the outputs of the operation before them
        self._inputs: dict[int, Tensor] = {}
        self._lineage = Lineage()
        self._counted = False
        self._turns: dict[tuple[str, str], int] = {}  # calls of a kind of function in a module, within a batch
        self._calls: dict[str, int] = {}  # of a norm, within a batch
        self._bounded: list[tuple[Tensor, BoundedReading]] = []
        self._channels_last: dict[torch.Size, bool] = {}  # by shape of an output

    def attach(self) -> None:
        """Put the hooks on; ``state_restored`` takes them off."""
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
        self._turns.clear()
        self._calls.clear()
        self._bounded.clear()
        self._counted = False
        return super().__enter__()  # type: ignore[no-untyped-call]

    def finish(self, given: Any) -> None:
        """Record what the model returned for a batch."""
        self.found.answers.append(answer_of(given))
        leaves = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        self.found.last |= {self._lineage.of(leaf).module for leaf in leaves} - {""}
        for out, reading in self._bounded:
            reading.last = reading.last or any(leaf is out for leaf in leaves)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        within = self._is_in_norm()
        watched = not within and (name in _RELUS or name in _BOUNDED)
        maker = self._lineage.of(args[0]).module if watched and args else ""
        if not within and name in _ADDS and len(args) > 1:
            self._see_sum(args[0], args[1])
        out = func(*args, **kwargs)
        here = self.inside[-1] if self.inside else "(model)"
        self._lineage.follow(func, args, kwargs, out, here)
        if watched and isinstance(out, Tensor) and out.dim() >= 2 and out.numel():
            if name in _RELUS:
                self._see_relu(maker, out)
            else:
                self._see_bounded(maker, name.rstrip("_"), out)
        return out

    def _is_in_norm(self) -> bool:
        """Whether a norm is running: its own sums are no parts of the network, and not every norm is one function."""
        return "" in self.found.norms or any(name in self.found.norms for name in self.inside)

    def _turn(self, kind: str, by: str = "") -> str:
        """A name for a call of a function in the module that is running, the same for every batch."""
        here = self.inside[-1] if self.inside else "(model)"
        number = self._turns[here, kind] = self._turns.get((here, kind), 0) + 1
        return by or (f"{here}, {kind} {number}" if number > 1 else here)

    def _see_relu(self, maker: str, out: Tensor) -> None:
        name = self._turn("ReLU", maker)
        module = self.model.get_submodule(maker) if maker else None
        # After a sum there is no such module: the last one with an output of this shape tells where the channels are.
        guess = self._channels_last.get(out.shape, out.dim() == 3)
        last = guess if module is None else isinstance(module, _CHANNELS_LAST)
        alive = (~(out <= 0)).movedim(-1 if last else 1, 0).flatten(1).any(1).cpu()
        before = self.found.relus.get(name)
        if before is None:
            self.found.relus[name] = ReluReading(name, alive, out.shape[0])
        elif before.alive.shape == alive.shape:
            before.alive |= alive
            before.samples += out.shape[0]

    def _see_bounded(self, maker: str, function: str, out: Tensor) -> None:
        name = self._turn(function, maker)
        reading = self.found.bounded.setdefault(name, BoundedReading(name, function))
        y = out.double()
        slope = 1 - y * y if function == "tanh" else 4 * y * (1 - y)
        if bool(slope.isfinite().all()):
            reading.slope += float(slope.mean())
            reading.flat += float((slope < 0.05).double().mean())
            reading.calls += 1
        self._bounded.append((out, reading))

    def _see_sum(self, a: Any, b: Any) -> None:
        alike = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dim() >= 2
        if not alike or not a.is_floating_point() or not a.numel() or isinstance(a, nn.Parameter):
            return
        name = self._turn("sum")
        squares = tuple(float(part.double().square().mean()) for part in (a, b))
        if not all(math.isfinite(square) for square in squares):
            return
        before = self.found.sums.get(name)
        if before is None:
            makers = self._lineage.of(a).module, self._lineage.of(b).module
            self.found.sums[name] = SumReading(name, makers, (squares[0], squares[1]), 1)
        else:
            before.squares = before.squares[0] + squares[0], before.squares[1] + squares[1]
            before.calls += 1

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
                self._see_output(name, module, output)

        return hook

    def _see_output(self, name: str, module: nn.Module, output: Tensor) -> None:
        is_norm = name in self.found.norms
        if is_operation(module) or is_norm:
            self._channels_last[output.shape] = isinstance(module, _CHANNELS_LAST)
        reading = self.found.norms.get(name)
        if reading is not None and not reading.bad and not bool(output.isfinite().all()):
            reading.bad = "output"
        known = self._lineage.of(output)
        if not known.module:  # containers and identities pass on a known tensor
            channels = known.channels
            if is_linear(module) or isinstance(module, _CHANNELS_LAST):
                channels = output.dim() - 1
            elif is_operation(module):
                channels = output.dim() - dimensions_of_channels(module) + 1
            dropout = {} if is_norm else known.dropout
            self._lineage.set(output, Origin(name, channels, dropout))

    def _keep_input(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            self._inputs[id(module)] = inputs[0]

    def _before_norm(self, reading: NormReading) -> Any:
        def hook(norm: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = inputs[0] if inputs else kwargs.get("input")
            reading.calls += 1
            if isinstance(x, Tensor) and x.numel() and x.dim() > 1:
                options: dict[str, Any] = {key: kwargs[key] for key in ("mask", "element_weight") if key in kwargs}
                try:
                    self._read_norm(reading, norm, x, options)
                except Exception as error:  # if the input is at fault, the norm itself will raise
                    reading.unread = f"{type(error).__name__}: {error}".split("\n", 1)[0]

        return hook

    def _read_norm(self, reading: NormReading, norm: nn.Module, x: Tensor, options: dict[str, Any]) -> None:
        origin = self._lineage.of(x)
        if origin.module in self.found.norms and origin.module != reading.name:
            reading.after = origin.module
        reading.dropout.update(origin.dropout)
        reading.dimensions = x.dim()
        if origin.channels is not None:
            reading.channels.add(origin.channels)
        if not bool(x.isfinite().all()):
            reading.bad = reading.bad or "input"
        if reading.sample is None:
            flat = x.detach().reshape(-1)
            reading.sample = flat[:: max(1, flat.numel() // _VALUES_KEPT)].float().cpu()
        if reading.axes is None or reading.bad:
            return
        rows = rows_of(norm, x).double()
        reading.sizes.append(rows.shape[1])
        if rows.shape[1] == 1:
            return
        moments = torch.var_mean(rows, 1, correction=0)
        if reading.axes == "batch":
            self._read_batch(reading, x, rows, moments)
        elif reading.axes == "layer":
            square = (rows - rows.mean(1, keepdim=True)).square()
            total = square.sum(1, keepdim=True)
            share = (square / total.clamp_min(1e-300)).sum(0).cpu()
            before, number = reading.energy or (torch.zeros_like(share), 0)
            reading.energy = before + share, number + len(rows)
        operation = self._operation_of.get(reading.name)
        given = None if operation is None else self._inputs.get(id(operation))
        if operation is not None and given is not None and reading.axes in _BY_CHANNEL:
            by_row = could_share_channels(operation, norm) and given.dim() == dimensions_of_channels(operation)
            self.unpaired |= set() if by_row else {reading.name}
        if is_frozen(norm) or (self.spheres_once and self.found.batches):
            return
        with random_state_restored(x):
            normalized = rows_of(norm, normalizer(norm)(x.double(), **options)).double()
        self._see_rows(reading, moments[0], normalized)
        first = reading.effective is None and reading.axes == "batch" and reading.name not in self.unpaired
        if operation is not None and given is not None and first:
            reading.effective = effective_weights(operation, norm, given, rows, normalized)

    def _read_batch(self, reading: NormReading, x: Tensor, rows: Tensor, moments: tuple[Tensor, Tensor]) -> None:
        reading.moments.add(rows, moments)
        turn = self._calls[reading.name] = self._calls.get(reading.name, 0) + 1
        if not self.found.batches and len(reading.places) < turn:
            reading.places.append(Call(moments[1].cpu(), moments[0].cpu()))
        if turn == 1 and len(x) > 1:
            of_samples = (x.flatten(2).mean(2) if x.dim() > 2 else x).double()
            var, mean = torch.var_mean(of_samples, 0)
            reading.batches.append(BatchMeans(mean.cpu(), var.cpu(), len(x)))

    def _see_rows(self, reading: NormReading, variances: Tensor, normalized: Tensor) -> None:
        if sum(len(part) for part in reading.radii) >= _ROWS_KEPT:
            return
        most = slice(0, _ROWS_KEPT)
        square = normalized.square().mean(1)
        mean = normalized.mean(1)
        reading.variances.append(variances[most].cpu())
        reading.radii.append(square.sqrt()[most].cpu())
        reading.along.append((mean.abs() / square.sqrt().clamp_min(1e-300))[most].cpu())


def normalizer(norm: nn.Module) -> Any:
    """A float64 copy of a norm that returns only the normalized values: γ = 1, and β = 0 unless β is divided too."""
    copied = measuring_copy(norm).double()
    with torch.no_grad():
        if isinstance(getattr(copied, "weight", None), Tensor):
            copied.weight.fill_(1.0)
        if isinstance(getattr(copied, "bias", None), Tensor) and not isinstance(norm, PopLayer):
            copied.bias.zero_()
    return copied
