"""Speed and memory as ratios to torch's own layers, in one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .cases import CALL, NATIVE, Case, Provider, cases, growth
from .results import (
    Result,
    append,
    by_row,
    code_date,
    machine,
    mean_ratio,
    picture,
    read,
    slope,
    table,
    table_of_peers,
    versions,
    with_most_threads,
)
from .roofline import Machine, about_machine, table_of_limits
from .timing import compare, training_step

__all__ = [
    "Case",
    "Provider",
    "Result",
    "about_machine",
    "append",
    "by_row",
    "cases",
    "machine",
    "mean_ratio",
    "measure",
    "picture",
    "read",
    "run",
    "table",
    "table_of_limits",
    "table_of_peers",
    "versions",
    "with_most_threads",
]


def run(
    full: bool = False,
    say: Callable[[str], None] = print,
    seconds: float | None = None,
    over_torch: bool = False,
    device: str = "cpu",
) -> list[Result]:
    """Measure everything: under a minute, or ``full`` in under a quarter of an hour.

    Args:
        full: all shapes and peers, and longer measurements.
        say: takes a line for each case as it is done.
        seconds: for the providers of a case, instead of the usual ones; those of networks take twice as long.
        over_torch: only geonorm and torch's own.
        device: where the layers run.
    """
    share = seconds or (5.0 if full else 0.3)
    mode = "full" if full else "short"
    here, found = Machine(device), []
    about = (machine(device), versions(), code_date(), mode)
    everything = list(cases(full))
    for number, case in enumerate(everything, 1):
        here.sample()
        long = 2 * share if case.start is training_step else share
        if over_torch:
            case = case.only([next(iter(case.providers)), NATIVE])
        found += measure(case, long, mode, alone=0 if over_torch or device != "cpu" else long / 3, device=device)
        say(f"[{number}/{len(everything)}] {_line(found, case)}")
    found += here.results(*about)
    return found if over_torch else found + _grow(full, say, device)


def measure(case: Case, seconds: float, mode: str, alone: float = 0.0, device: str = "cpu") -> list[Result]:
    """Results of one case, its providers timed against each other; for ``alone`` seconds with one thread too."""
    calls, kept = case.work(device)
    about = (machine(device), versions(), code_date())
    timings = {torch.get_num_threads(): compare(calls, seconds, device=device)}
    with one_thread() as fewer:
        if fewer and alone:
            timings[1] = compare(
                {name: calls[name] for name in calls if name in (next(iter(calls)), NATIVE, CALL)}, alone
            )
    return [
        Result(*about, threads, mode, case.row, case.name, provider, *timing, kept.get(provider, 0), case.moved)
        for threads, providers in timings.items()
        for provider, timing in providers.items()
    ]


@contextmanager
def one_thread() -> Iterator[bool]:
    """Within, torch uses one thread; False if it did so before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads > 1
    finally:
        torch.set_num_threads(threads)


def _line(found: list[Result], case: Case) -> str:
    mine = [result for result in found if (result.row, result.case) == (case.row, case.name)]
    parts = [f"{r.provider} {r.ratio:.2f}" for r in mine[1:] if r.threads == mine[0].threads and r.provider != CALL]
    single = [f"1 thread {r.ratio:.2f}" for r in mine if r.threads != mine[0].threads and r.provider == NATIVE]
    return f"{case.row}, {case.name}: {', '.join(parts + single)}"


def _grow(full: bool, say: Callable[[str], None], device: str) -> list[Result]:
    """Cost against size; the ratio is that to the smallest size, per value."""
    about = (machine(device), versions(), code_date(), torch.get_num_threads(), "full" if full else "short")
    found: dict[str, list[tuple[tuple[int, ...], float]]] = {}
    for size in growth(full, device):
        timing = compare({NATIVE: size.call}, 1.0 if full else 0.1, device=device)[NATIVE]
        found.setdefault(size.along, []).append((size.shape, timing.microseconds))
    results = []
    for along, points in found.items():
        each = [time / math.prod(shape) for shape, time in points]
        exponent = slope([math.prod(shape) for shape, _ in points[-3:]], [time for _, time in points[-3:]])
        say(f"growth in {along}: time grows as size^{exponent:.2f} over the largest sizes")
        for (shape, time), cost in zip(points, each, strict=True):
            more = cost / each[0]
            results.append(Result(*about, f"growth in {along}", str(shape), "per value", time, more, more, more))
    return results
