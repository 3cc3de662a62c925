"""Times as ratios: providers in shuffled order, many rounds, medians.

Machines are noisy and shared, so an absolute time says little, and a fixed order flatters whoever comes after a slow
neighbour. In each round every provider runs once, in random order, and is divided by the baseline of the same round.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .clocks import CLOCKS, WARM_UP, Clock
from .clocks import cpu_seconds as seconds_of


class Timing(NamedTuple):
    """One provider's cost.

    Attributes:
        microseconds: median time of a call.
        ratio: median over rounds of its time over the baseline's.
        low, high: quartiles of that ratio.
    """

    microseconds: float
    ratio: float
    low: float
    high: float


def compare(
    work: Mapping[str, Callable[[], object]], seconds: float, seed: int = 0, device: str = "cpu"
) -> dict[str, Timing]:
    """Time each provider on a device for its share of ``seconds``; the first is the baseline."""
    order, shuffle, clock = list(work), random.Random(seed), CLOCKS[device]
    numbers = {name: repeats(call, clock=clock, warm_up=WARM_UP[device]) for name, call in work.items()}
    times: dict[str, list[float]] = {name: [] for name in work}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[order[0]]) < 5:
        for name in shuffle.sample(order, len(order)):
            times[name].append(clock(work[name], numbers[name]))
    base = times[order[0]]
    found = {}
    for name, values in times.items():
        ratios = sorted(value / reference for value, reference in zip(values, base, strict=True))
        low, _, high = statistics.quantiles(ratios, n=4)
        found[name] = Timing(statistics.median(values) * 1e6, statistics.median(ratios), low, high)
    return found


def repeats(call: Callable[[], object], least: float = 2e-3, clock: Clock = seconds_of, warm_up: float = 0.0) -> int:
    """Calls that together take long enough to be timed; the first ones warm up (and compile)."""
    call()
    end = time.perf_counter() + warm_up
    while time.perf_counter() < end:
        clock(call, 1)
    for _ in range(3):
        once = clock(call, 1)
        if once > 50 * least:
            return 1
    return max(1, min(200, round(least / max(once, 1e-7))))


def step(layer: Callable[..., Tensor], *inputs: Any) -> Callable[[], None]:
    """Forward and backward of a layer, with gradients of the first input and of the parameters."""
    x = inputs[0]
    gradient = torch.randn_like(layer(*inputs))
    parameters = list(layer.parameters()) if isinstance(layer, nn.Module) else []

    def run() -> None:
        x.grad = None
        for parameter in parameters:
            parameter.grad = None
        layer(*inputs).backward(gradient)

    return run


def inference(layer: Callable[..., Tensor], *inputs: Any) -> Callable[[], None]:
    """Forward alone, without gradients."""

    def run() -> None:
        with torch.no_grad():
            layer(*inputs)

    return run


def training_step(model: nn.Module, x: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward, backward and a step of SGD of a network."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return run


def saved_bytes(layer: Callable[..., Tensor], *inputs: Any) -> int:
    """Memory that the graph of one call keeps for backward: storages once, parameters and buffers not at all."""
    own = set()
    if isinstance(layer, nn.Module):
        own = {t.untyped_storage().data_ptr() for t in (*layer.parameters(), *layer.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(*inputs)
    del output
    return sum(kept.values())
