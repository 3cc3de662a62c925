"""Costs as ratios to torch's own, in one run and shuffled order. Writes the tables and the picture of the docs.

``python benchmarks/run.py`` takes under fifteen minutes; ``--short`` under one, and writes nothing.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from geonorm.functional import center
from geonorm.lab import bench

DOCS = Path(__file__).parents[1] / "docs"
ROUNDS = 7


def main() -> None:
    if "--short" in sys.argv:
        print(bench.table(bench.run(full=False)))
        return
    torch.manual_seed(0)
    write("center", DOCS / "center.md", measure(centers, [(128, 64, 32, 32), (4096, 64)], "forward"))
    results = bench.run(full=True)
    bench.append(results, Path(__file__).with_name("results.csv"))
    write("speed", DOCS / "speed.md", f"Measured on {bench.machine()}.\n\n{bench.table(results)}")
    bench.picture(results, DOCS / "images" / "speed.png")


def centers(shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    x = torch.randn(shape)
    dims = tuple(d for d in range(len(shape)) if d != 1)
    per_channel = torch.full((64,), 1.5)
    return {
        "mean": lambda: x.mean(dims),
        "median (torch)": lambda: x.transpose(0, 1).reshape(64, -1).median(1).values,
        "center, φ=1": lambda: center(x, 1.0, dims),
        "center, φ=1.2": lambda: center(x, 1.2, dims),
        "center, φ=1.5": lambda: center(x, 1.5, dims),
        "center, φ=1.5 per channel": lambda: center(x, per_channel, dims),
        "center, φ=2": lambda: center(x, 2.0, dims),
        "center, φ=3": lambda: center(x, 3.0, dims),
    }


def measure(
    providers: Callable[[tuple[int, ...]], dict[str, Callable[[], object]]], shapes: list[tuple[int, ...]], what: str
) -> str:
    """A Markdown table: the median of each provider over that of the first, per shape."""
    table: dict[str, list[str]] = {}
    for shape in shapes:
        work = providers(shape)
        times: dict[str, list[float]] = {name: [] for name in work}
        for round_ in range(ROUNDS + 1):
            for name in random.sample(list(work), len(work)):
                start = time.perf_counter()
                work[name]()
                if round_:  # the first round warms up
                    times[name].append(time.perf_counter() - start)
        base = statistics.median(next(iter(times.values())))
        for name, values in times.items():
            table.setdefault(name, []).append(f"{statistics.median(values) / base:.1f}×")
    lines = [f"| {what} | {' | '.join(map(str, shapes))} |", "| --- |" + " --- |" * len(shapes)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in table.items())]) + "\n"


def write(name: str, page: Path, table: str) -> None:
    """Replace the table between the page's marks."""
    print(table)
    start, end = f"<!-- benchmark: {name} -->\n", "<!-- end -->\n"
    head, _, rest = page.read_text().partition(start)
    page.write_text(head + start + table + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
