"""Speed and memory as ratios to torch's own layers, in one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .cases import NATIVE, Case, cases, growth
from .results import Result, append, machine, picture, slope, table, versions
from .timing import compare

__all__ = ["Case", "Result", "append", "machine", "measure", "picture", "run", "table"]


def run(full: bool = False, say: Callable[[str], None] = print) -> list[Result]:
    """Measure everything: under a minute, or ``full`` in under fifteen.

    Args:
        full: all shapes and peers, and longer measurements.
        say: takes a line for each case as it is done.
    """
    seconds = 8.0 if full else 1.0
    found = []
    mode = "full" if full else "short"
    for case in cases(full):
        found += measure(case, seconds, mode)
        say(_line(found, case))
        with one_thread() as fewer:
            if fewer:
                found += measure(case.against_torch(), seconds / 4, mode)
    return found + _grow(full, say)


@contextmanager
def one_thread() -> Iterator[bool]:
    """Within, torch uses one thread; False if it did so before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads > 1
    finally:
        torch.set_num_threads(threads)


def measure(case: Case, seconds: float, mode: str) -> list[Result]:
    """Results of one case, its providers timed against each other."""
    about = (machine(), versions(), torch.get_num_threads(), mode)
    return [
        Result(
            *about,
            case.row,
            case.name,
            provider,
            *timing,
            kept=str(case.kept.get(provider, "")),
            target="" if case.target is None or provider != NATIVE else f"{case.target:g}",
        )
        for provider, timing in compare(case.work, seconds).items()
    ]


def _line(found: list[Result], case: Case) -> str:
    mine = [result for result in found if (result.row, result.case) == (case.row, case.name)]
    parts = [f"{result.provider} {result.ratio:.2f}" for result in mine[1:]]
    return f"{case.row}, {case.name}: {', '.join(parts)}" + (f"  (to reach {case.target:g})" if case.target else "")


def _grow(full: bool, say: Callable[[str], None]) -> list[Result]:
    """Cost against size; the ratio is that to the smallest size, per value."""
    about = (machine(), versions(), torch.get_num_threads(), "full" if full else "short")
    found: dict[str, list[tuple[tuple[int, ...], float]]] = {}
    for size in growth(full):
        timing = compare({NATIVE: size.call}, 1.0 if full else 0.2)[NATIVE]
        found.setdefault(size.along, []).append((size.shape, timing.microseconds))
    results = []
    for along, points in found.items():
        each = [time / math.prod(shape) for shape, time in points]
        exponent = slope([math.prod(shape) for shape, _ in points[-3:]], [time for _, time in points[-3:]])
        say(f"growth in {along}: time grows as size^{exponent:.2f} over the largest sizes")
        results += [
            Result(
                *about,
                f"growth in {along}",
                str(shape),
                "per value",
                time,
                cost / each[0],
                cost / each[0],
                cost / each[0],
            )
            for (shape, time), cost in zip(points, each, strict=True)
        ]
    return results
