"""The cost of a Monitor: a recorded training step of ResNet-20 against a plain one, in one process, in shuffled order.

``python -m benchmarks.monitor`` takes about a minute and writes its line into docs/analysis/growth.md.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.run import DOCS, keep
from geonorm.analysis import Monitor
from geonorm.lab.models import resnet20

BATCH, EVERY, ROUNDS = 64, 50, 40


def training(every: int | None) -> Callable[[], None]:
    torch.manual_seed(0)
    model = resnet20()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    monitor = None if every is None else Monitor(model, optimizer, every=every)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(loss)

    return step


def cpu_seconds(call: Callable[[], None], times: int = 1) -> float:
    """CPU time of this process per call, so that other processes on the machine do not count."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def main() -> None:
    torch.set_num_threads(1)
    work = {"plain": training(None), "recorded": training(1)}
    for call in work.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in work}
    shuffle = random.Random(0)
    for _ in range(ROUNDS):
        for name in shuffle.sample(list(work), len(work)):
            times[name].append(cpu_seconds(work[name]))
    ratios = [recorded / plain for recorded, plain in zip(times["recorded"], times["plain"], strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    # Steps that are not recorded have no hooks: only the call itself takes time.
    monitor = Monitor(nn.Linear(2, 2), every=10**9)
    monitor.step()
    idle = cpu_seconds(monitor.step, 10_000) / statistics.median(times["plain"])
    share = (ratio - 1 + (EVERY - 1) * idle) / EVERY
    line = (
        f"A recorded step of ResNet-20 (batch {BATCH}, one thread, CPU time) takes {ratio:.2f} times a plain one "
        f"(quartiles {low:.2f} and {high:.2f}), and the call in all others {idle:.0e} of one: {100 * share:.1f} % of "
        f"training at the default of one in {EVERY}."
    )
    found = {"ratio": ratio, "quartiles": [low, high], "idle": idle, "share": share}
    keep("cost", DOCS / "analysis" / "growth.md", line + "\n", found)


if __name__ == "__main__":
    main()
