"""The cost of the center against torch's mean, in one run and shuffled order; writes the table of docs/center.md."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from geonorm.functional import center

SHAPES = {"(128, 64, 32, 32)": (128, 64, 32, 32), "(4096, 64)": (4096, 64)}
ROUNDS = 7
PAGE = Path(__file__).parents[1] / "docs" / "center.md"
START, END = "<!-- benchmark: center -->\n", "<!-- end -->\n"


def providers(x: torch.Tensor, dims: tuple[int, ...]) -> dict[str, Callable[[], torch.Tensor]]:
    learned = torch.full((64,), 1.5)
    return {
        "mean": lambda: x.mean(dims),
        "median (torch, rows made contiguous)": lambda: x.transpose(0, 1).reshape(64, -1).median(1).values,
        "center, φ=1": lambda: center(x, 1.0, dims),
        "center, φ=1.2": lambda: center(x, 1.2, dims),
        "center, φ=1.5": lambda: center(x, 1.5, dims),
        "center, φ=1.5 per channel": lambda: center(x, learned, dims),
        "center, φ=2": lambda: center(x, 2.0, dims),
        "center, φ=3": lambda: center(x, 3.0, dims),
    }


def main() -> None:
    torch.manual_seed(0)
    table: dict[str, list[str]] = {}
    for shape in SHAPES.values():
        x = torch.randn(shape)
        dims = tuple(d for d in range(x.dim()) if d != 1)
        work = providers(x, dims)
        times: dict[str, list[float]] = {name: [] for name in work}
        for step in range(ROUNDS + 1):
            for name in random.sample(list(work), len(work)):
                start = time.perf_counter()
                work[name]()
                if step:  # the first round warms up
                    times[name].append(time.perf_counter() - start)
        base = statistics.median(times["mean"])
        for name, values in times.items():
            table.setdefault(name, []).append(f"{statistics.median(values) / base:.0f}×")
    lines = [f"| forward | {' | '.join(SHAPES)} |", "| --- |" + " --- |" * len(SHAPES)]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in table.items()]
    text = "\n".join(lines) + "\n"
    print(text)
    head, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(head + START + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
