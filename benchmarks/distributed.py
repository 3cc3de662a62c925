"""The cost of statistics over several processes: counts of collectives and bytes, and times relative to one process.

``python -m benchmarks.distributed`` starts two gloo processes, one thread each; under two minutes on a quiet machine.
"""

from __future__ import annotations

import csv
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import geonorm
from benchmarks import speed
from benchmarks.run import DOCS, write
from geonorm.lab.models.resnet import resnet20

STORE = Path(__file__).with_name("distributed.csv")
CHANNELS, SHAPE = 64, (64, 64, 16, 16)
SPECS = ("aug(phi=2)", "guardbn", "augbn(phi=1.5)", "diffphi", "robustbn", "median", "pop")
ROUNDS = 9
FIELDS = ("machine", "versions", "work", "norm", "processes", "forward", "backward", "bytes", "ratio", "low", "high")


def main() -> None:
    rows = []
    for size in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            queue = mp.get_context("spawn").SimpleQueue()
            mp.spawn(work, (size, f"{folder}/store", queue), nprocs=size)
            rows += queue.get()
    new = not STORE.exists()
    with STORE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerows(rows)
    write("distributed", DOCS / "guide" / "sync.md", table(rows))


def work(rank: int, size: int, store: str, queue: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    rows = []
    for name, make, batch in (
        (f"one layer, {SHAPE}", lambda: nn.Sequential(nn.BatchNorm2d(CHANNELS)), torch.randn(SHAPE)),
        ("ResNet-20 step, batch 32", lambda: resnet20("bn"), torch.randn(32, 3, 32, 32)),
    ):
        rows += measure(name, make, batch, size)
    if rank == 0:
        queue.put(rows)
    dist.barrier()
    dist.destroy_process_group()


def measure(name: str, make: Callable[[], nn.Module], batch: Tensor, size: int) -> list[dict[str, Any]]:
    """Each norm alone and over the group, in a shuffled order that is the same in every process."""
    models: dict[tuple[str, bool], nn.Module] = {("torch's BatchNorm", False): make()}
    alone = len(list(make().children())) == 1
    for spec in SPECS[:-1] if alone else SPECS:  # POP-Norm needs an operation after it
        for joint in (False, True):
            models[spec, joint] = model = make()
            geonorm.convert(model, spec)
            if joint:
                geonorm.sync(model)
    times: dict[tuple[str, bool], list[float]] = {key: [] for key in models}
    order = random.Random(0)
    for turn in range(ROUNDS + 2):
        for key in order.sample(list(models), len(models)):
            dist.barrier()
            start = time.perf_counter()
            step(models[key], batch)
            if turn >= 2:
                times[key].append(time.perf_counter() - start)
    rows = []
    baseline = times["torch's BatchNorm", False]
    for (spec, joint), taken in times.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(taken, baseline, strict=True))
        forward, backward, sent = count(models[spec, joint], batch) if joint and size > 1 else (0, 0, 0)
        rows.append(
            {
                "machine": speed.machine(),
                "versions": speed.versions(),
                "work": name,
                "norm": f"{spec}, over the group" if joint else spec,
                "processes": size,
                "forward": forward,
                "backward": backward,
                "bytes": sent,
                "ratio": f"{statistics.median(ratios):.4g}",
                "low": f"{ratios[len(ratios) // 4]:.4g}",
                "high": f"{ratios[3 * len(ratios) // 4]:.4g}",
            }
        )
    return rows


def step(model: nn.Module, batch: Tensor) -> None:
    model.zero_grad()
    model(batch.requires_grad_()).sum().backward()


def count(model: nn.Module, batch: Tensor) -> tuple[int, int, int]:
    """Collectives of a forward and of a backward, and the bytes that this process sends."""
    reduce, gather, calls = dist.all_reduce, dist.all_gather, [0, 0]

    def sent(values: Tensor) -> None:
        calls[0] += 1
        calls[1] += values.numel() * values.element_size()

    def reducing(values: Tensor, **options: Any) -> None:
        sent(values)
        reduce(values, **options)

    def gathering(parts: list[Tensor], values: Tensor, *rest: Any) -> None:
        sent(values)
        gather(parts, values, *rest)

    dist.all_reduce, dist.all_gather = reducing, gathering
    try:
        output = model(batch)
        forward = calls[0]
        output.sum().backward()
    finally:
        dist.all_reduce, dist.all_gather = reduce, gather
    return forward, calls[0] - forward, calls[1]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: counts and times of two processes beside the times of one."""
    lines = [f"Measured on {rows[0]['machine']} per process; medians of {ROUNDS} rounds in shuffled order.", ""]
    for name in dict.fromkeys(row["work"] for row in rows):
        here = {(row["norm"], row["processes"]): row for row in rows if row["work"] == name}
        lines += [
            f"| {name} | collectives, forward + backward | KB sent | time, 1 process | time, 2 processes |",
            "| --- | --- | --- | --- | --- |",
        ]
        for norm in dict.fromkeys(norm for norm, _ in here):
            one, two = here[norm, 1], here[norm, 2]
            counts = f"{two['forward']} + {two['backward']}" if two["forward"] else "none"
            sent = f"{two['bytes'] / 1024:.1f}" if two["bytes"] else ""
            lines.append(f"| {norm} | {counts} | {sent} | {float(one['ratio']):.2f}× | {float(two['ratio']):.2f}× |")
        if name.startswith("one layer"):
            sent = 4 * (2 * CHANNELS + 1) + 4 * 2 * CHANNELS
            lines.append(f"| torch's SyncBatchNorm, by its source (GPU only) | 1 + 1 | {sent / 1024:.1f} | | |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
