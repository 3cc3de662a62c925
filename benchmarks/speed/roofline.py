"""What bounds the rows: the machine's memory and arithmetic, measured in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import torch

from .cases import CALL, NATIVE
from .clocks import CLOCKS, cpu_seconds
from .results import Result, by_row, with_most_threads

ROW = "machine"
ARITHMETIC, COPY = "arithmetic, threads over one", "copy"
COPIED = 128 << 20  # bytes, more than a cache holds
SIZE = f"{COPIED >> 20} MB"


class Machine:
    """Samples of the machine's speed, taken through a run: it may change while others use the same processor."""

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.threads = device, torch.get_num_threads()
        self.values, self.logarithms = torch.rand(1 << 16), torch.empty(1 << 16)
        self.source, self.target = torch.rand(COPIED // 4).to(device), torch.empty(COPIED // 4, device=device)
        self.speed_up: list[float] = []
        self.copies: dict[int, list[float]] = {}
        self.sample()  # warms up
        self.speed_up.clear()
        self.copies.clear()

    def sample(self) -> None:
        """Take one of each: a fifth of a second. On a GPU a copy alone, whose threads are its own."""
        if self.device != "cpu":
            self.copies.setdefault(self.threads, []).append(CLOCKS[self.device](self._copy, 10))
            return
        times = {}
        for threads in dict.fromkeys((1, self.threads)):
            torch.set_num_threads(threads)
            # Dozens of operations per value, in registers: 0.5 MB, so memory has no part in it.
            times[threads] = min(
                cpu_seconds(lambda: torch.lgamma(self.values, out=self.logarithms), 1) for _ in range(5)
            )
            self.copies.setdefault(threads, []).append(cpu_seconds(self._copy, 1))
        torch.set_num_threads(self.threads)
        self.speed_up.append(times[1] / times[self.threads])

    def _copy(self) -> None:
        self.target.copy_(self.source)

    def results(self, machine: str, versions: str, code: str, mode: str) -> list[Result]:
        """To be stored beside the rows."""
        about = (machine, versions, code)
        found = [
            Result(*about, threads, mode, ROW, COPY, SIZE, 1e6 * statistics.median(times), 1, 1, 1, 0, 2 * COPIED)
            for threads, times in self.copies.items()
        ]
        if not self.speed_up:
            return found
        low, middle, high = quartiles(self.speed_up)
        return [*found, Result(*about, self.threads, mode, ROW, ARITHMETIC, "speed-up", 0, middle, low, high)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Of one value or more."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def bandwidth(results: Iterable[Result], threads: int) -> float:
    """Bytes that a copy reads and writes in a microsecond."""
    return next(r.moved / r.microseconds for r in results if (r.row, r.case, r.threads) == (ROW, COPY, threads))


def speed_up(results: Iterable[Result]) -> Result:
    """How arithmetic gains from the threads of the run, with its quartiles over the run."""
    return next(result for result in results if (result.row, result.case) == (ROW, ARITHMETIC))


def about_machine(results: Sequence[Result]) -> str:
    """A sentence on the machine, for the text beside a table."""
    threads = max(result.threads for result in results)
    said = f"A large copy moves {bandwidth(results, threads) / 1e3:.1f} GB/s, counted as read and written"
    if any(result.case == ARITHMETIC for result in results) and threads > 1:
        of = speed_up(results)
        said += (
            f" ({bandwidth(results, 1) / 1e3:.1f} with one thread); arithmetic in registers is {of.ratio:.2f} times as"
            f" fast with {threads} threads as with one (quartiles over the run {of.low:.2f}–{of.high:.2f})"
        )
    return f"{said}.\n"


def shares(members: Sequence[Result], bytes_per_microsecond: float) -> dict[str, float] | None:
    """Parts of the time of a row, a mean over its cases: a call on a few values, the bytes as a copy, the rest."""
    parts = []
    for case in dict.fromkeys(member.case for member in members):
        times = {member.provider: member for member in members if member.case == case}
        if NATIVE not in times or CALL not in times:
            continue
        whole = times[NATIVE].microseconds
        python = min(1.0, times[CALL].microseconds / whole)
        memory = min(1.0 - python, times[NATIVE].moved / bytes_per_microsecond / whole)
        parts.append({"call": python, "memory": memory, "arithmetic": 1.0 - python - memory})
    return {name: statistics.fmean(part[name] for part in parts) for name in parts[0]} if parts else None


def table_of_limits(results: Sequence[Result]) -> str:
    """What bounds each row: a Markdown table."""
    main, _ = with_most_threads(results)
    speed = bandwidth(main, main[0].threads)
    heads = ("row", "MB moved", "at the speed of a copy", "measured", "call", "memory", "arithmetic", "most of it")
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row, members in by_row(main).items():
        parts = shares(members, speed)
        if parts is None or row.endswith("small maps"):
            continue
        mine = [member for member in members if member.provider == NATIVE]
        moved = statistics.geometric_mean([member.moved for member in mine])
        measured = statistics.geometric_mean([member.microseconds for member in mine])
        cells = [f"{moved / 1e6:.2g}", _time_of(moved / speed), _time_of(measured)]
        cells += [f"{100 * part:.0f} %" for part in parts.values()]
        lines.append(f"| {row} | {' | '.join(cells)} | {max(parts, key=parts.__getitem__)} |")
    return "\n".join(lines) + "\n"


def _time_of(microseconds: float) -> str:
    return f"{microseconds / 1e3:.2f} ms" if microseconds >= 1e3 else f"{microseconds:.0f} µs"
