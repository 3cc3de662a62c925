"""``recalibrate``: recompute running statistics from batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..functional._guard import check_k
from ..introspect.layouts import is_frozen, is_ours, keeps_statistics, layout_of
from ..introspect.observe import call_model
from ..introspect.progress import progress
from ..introspect.select import Where, check_model, chosen
from ..ops import statistics_paused
from .conversion_record import synced
from .report import Left, Report
from .stat_accumulator import StatAccumulator, element_weight_of, size_of


def recalibrate(
    model: nn.Module,
    batches: Iterable[Any],
    forward: Callable[[nn.Module, Any], Any] | None = None,
    *,
    where: Where = None,
    memory: int = 1 << 30,
    guard: float | None = None,
) -> Report:
    """Recompute the running statistics of all norms from batches.

        running_mean, running_var, running_center, ... = mean, variance, center, ... of all values that reach the layer

    Not an average over batches: batches of unequal size count by their values, and the center is that of the pooled
    values. While it measures, these norms normalize each batch with its own statistics, as in training; everything else
    (dropout, say) is in evaluation. If anything fails, the statistics stay as they were. Works on torch's layers too.

    With a guard, each batch is judged where it reaches a norm over the batch, and far samples are pulled in before they
    are measured, as ``geonorm.functional.guard`` does. The norm's output is then that of a guarded layer in
    training, so later norms measure the pulled samples. A sample that is not finite enters no statistic. The
    report counts both kinds. Where nothing is pulled, the statistics are those without a guard, bit for bit.

    Args:
        model: any model, in any mode; the mode is kept.
        batches: an iterable such as a DataLoader, of tensors, of tuples whose first entry is the input, or of dicts of
            the model's arguments.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the input.
        where: which norms: a name pattern, several, or a function of (name, module). All by default.
        memory: bytes for keeping inputs of layers, needed for centers other than the mean. More layers than fit are
            measured in further passes over the batches; where a single one does not fit, its center is the average of
            the batches' centers, and the report says so.
        guard: for all norms over the batch, torch's too: pull samples farther than this many median distances from the
            joint center; 3.0 is the usual radius. ``None``: a guarded layer uses its own guard, the others none.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        >>> print(geonorm.recalibrate(model, [torch.zeros(6, 2), torch.ones(2, 2)]))
        recalibrate: 1 module changed, 0 left
        <BLANKLINE>
        module  before       after
        ------  -----------  ---------------------
        0       BatchNorm1d  8 values in 2 batches
        >>> model[0].running_mean
        tensor([0.2500, 0.2500])
    """
    check_model(model, "recalibrate")
    check_k(guard, "guard")
    if statistics_paused():
        raise RuntimeError("recalibrate has nothing to do inside no_stat_update()")
    report, accumulators = Report("recalibrate"), []
    is_chosen = chosen(model, where)
    for name, module in model.named_modules():
        if not keeps_statistics(module) or not is_chosen(name, module):
            continue
        if is_frozen(module):
            report.left.append(Left(name or "(model)", type(module).__name__, "frozen; unfreeze it first"))
        elif layout_of(module) is None and not is_ours(module) and not _is_plain_sync(module):
            report.left.append(Left(name or "(model)", type(module).__name__, "its statistics are of an unknown kind"))
        else:
            accumulators.append(StatAccumulator(name, module, guard))
    batches = list(batches) if isinstance(batches, Iterator) else batches  # there may be several passes
    _measure(model, batches, forward or call_model, accumulators, memory)
    for accumulator in accumulators:
        accumulator.commit(report)
    return report


def _measure(
    model: nn.Module,
    batches: Iterable[Any],
    forward: Callable[[nn.Module, Any], Any],
    accumulators: list[StatAccumulator],
    memory: int,
) -> None:
    """Run the batches through the model as often as the memory for kept inputs requires."""
    with _measuring(model, [accumulator.layer for accumulator in accumulators]):
        budget = _Budget(memory)

        def first(accumulator: StatAccumulator, x: Tensor, element_weight: Tensor | None) -> None:
            accumulator.count(x, element_weight)
            if accumulator.kept is not None and budget.takes(accumulator, x, element_weight):
                accumulator.keep(x, element_weight)

        def again(accumulator: StatAccumulator, x: Tensor, element_weight: Tensor | None) -> None:
            (accumulator.average if accumulator.averages else accumulator.keep)(x, element_weight)

        number = _pass(model, batches, forward, accumulators, accumulators, first)
        if not number:
            raise ValueError("expected at least one batch to measure (got none)")
        for accumulator in accumulators:
            accumulator.finish()
            if accumulator.guard is not None:
                accumulator.guard.is_counting = False
        waiting = budget.refused
        while waiting:
            now, waiting = _fitting(waiting, memory)
            again_number = _pass(model, batches, forward, accumulators, now, again)
            if again_number != number:
                raise RuntimeError(
                    f"expected the same batches in every pass (got {number}, then {again_number}); "
                    "give a list or a DataLoader, or more memory= for a single pass"
                )
            for accumulator in now:
                accumulator.finish()


def _fitting(waiting: list[StatAccumulator], memory: int) -> tuple[list[StatAccumulator], list[StatAccumulator]]:
    """The accumulators whose inputs fit into memory together, and the rest. One too large by itself is averaged."""
    now: list[StatAccumulator] = []
    later: list[StatAccumulator] = []
    room = memory
    for accumulator in waiting:
        accumulator.averages = accumulator.bytes > memory
        needed = 0 if accumulator.averages else accumulator.bytes
        if needed <= room:
            accumulator.kept = None if accumulator.averages else []
            now.append(accumulator)
            room -= needed
        else:
            later.append(accumulator)
    return now, later


class _Budget:
    """Memory for inputs in the first pass, before their sizes are known. Layers that exceed it need another pass."""

    def __init__(self, memory: int) -> None:
        self.room = memory
        self.refused: list[StatAccumulator] = []

    def takes(self, accumulator: StatAccumulator, x: Tensor, element_weight: Tensor | None) -> bool:
        size = size_of(x, element_weight)
        if size <= self.room:
            self.room -= size
            return True
        self.room += accumulator.bytes - size
        accumulator.kept = None
        self.refused.append(accumulator)
        return False


@contextmanager
def _measuring(model: nn.Module, layers: Sequence[nn.Module]) -> Iterator[None]:
    """The model in evaluation except for these norms, whose buffers are copies; restored afterwards.

    Every process measures alone: the others may have different batches, or none. Samples are judged before they reach a
        norm.
    """
    modes = [(module, module.training) for module in model.modules()]
    joined = [(module, module.process_group) for module in synced(model).values()]
    guards = [(layer, layer.guard) for layer in layers if is_ours(layer) and "guard" in layer.__dict__]
    of_torch = [layer for layer in layers if _is_plain_sync(layer)]
    buffers = [(layer, dict(layer._buffers)) for layer in layers]
    try:
        model.eval()
        for module, _ in joined:
            module.process_group = None  # type: ignore[assignment]
        for layer, _ in guards:
            layer.guard = None  # type: ignore[assignment]
        for layer in of_torch:
            layer.__dict__["forward"] = MethodType(_BatchNorm.forward, layer)
        for layer, own in buffers:
            layer.training = True
            layer._buffers.update({name: None if b is None else b.clone() for name, b in own.items()})
        with torch.no_grad():
            yield
    finally:
        for layer, own in buffers:
            layer._buffers.update(own)
        for layer in of_torch:
            layer.__dict__.pop("forward", None)
        for layer, k in guards:
            layer.guard = k
        for module, group in joined:
            module.process_group = group
        for module, mode in modes:
            module.training = mode


def _is_plain_sync(module: nn.Module) -> bool:
    """Whether it is torch's SyncBatchNorm, which in one process is BatchNorm."""
    if not isinstance(module, nn.SyncBatchNorm) or "forward" in module.__dict__:
        return False
    return type(module).forward is nn.SyncBatchNorm.forward


def _pass(
    model: nn.Module,
    batches: Iterable[Any],
    forward: Callable[[nn.Module, Any], Any],
    accumulators: Sequence[StatAccumulator],
    looking: Sequence[StatAccumulator],
    look: Callable[[StatAccumulator, Tensor, Tensor | None], None],
) -> int:
    """Run all batches through the model once, with guards at work; returns the number of batches.

    ``look`` is called with the input of each accumulator in ``looking``.
    """

    def watch(accumulator: StatAccumulator) -> Callable[..., Any]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
            x = inputs[0] if inputs else kwargs["input"]
            if accumulator.per_instance and x.dim() < accumulator.rank:
                x = x.unsqueeze(0)
            if not x.numel():
                return None
            x, element_weight, changed = x.detach(), element_weight_of(x, kwargs), None
            if accumulator.guard is not None:
                x, element_weight, *changed = accumulator.guard.admit(x, element_weight, inputs, kwargs)
            if accumulator in looking and len(x):
                look(accumulator, x, element_weight)
            return changed and tuple(changed)

        return hook

    handles = [
        accumulator.layer.register_forward_pre_hook(watch(accumulator), with_kwargs=True)
        for accumulator in accumulators
    ]
    for accumulator in accumulators:
        if accumulator.guard is not None:  # before the hooks of others, which see a whole batch
            handles.append(accumulator.layer.register_forward_hook(accumulator.guard.put_back, prepend=True))
    number = 0
    try:
        for batch in progress(batches, "recalibrate"):
            forward(model, batch)
            number += 1
    finally:
        for handle in handles:
            handle.remove()
    return number
