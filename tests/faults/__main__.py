"""``make test-faults``: inject faults, count what survives, and write the table of ``docs/lab.md``; ten minutes.

With the name of a kind, or a part of it, only that one, three times, and nothing is written.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.pages import put
from geonorm.lab.bars import say

from .kinds import Count, faults

STORE = Path(__file__).with_name("counted.csv")
PAGE = Path(__file__).parents[2] / "docs" / "lab.md"
MARK = "faults"


def main(chosen: str = "") -> int:
    torch.set_num_threads(1)  # copies of this process must not wait for threads that they do not have
    counts = []
    with tempfile.TemporaryDirectory(prefix="geonorm-faults-") as name:
        folder = Path(name)
        for inject in faults(folder, bool(chosen), say):
            if chosen not in str(inject.__doc__):
                continue
            start = time.perf_counter()
            counts.append(inject())
            one = counts[-1]
            say(
                f"{one.fault}, {one.command}: {one.injected} injected, {one.survived} survived, {one.hit} damaged runs "
                f"executed again, {one.lost} lost ({time.perf_counter() - start:.0f} s)"
            )
    if not chosen:
        write(counts)
        put(PAGE, MARK, table(counts))
    return int(not counts or any(one.lost or one.survived < one.injected for one in counts))


def write(counts: list[Count]) -> None:
    with STORE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Count._fields)
        writer.writerows(counts)


def stored() -> list[Count]:
    with STORE.open(newline="", encoding="utf-8") as file:
        return [Count(*row[:2], *map(int, row[2:])) for row in list(csv.reader(file))[1:]]


def table(counts: list[Count]) -> str:
    """The Markdown of the page."""
    lines = ["| fault | command | injected | survived | hit | lost |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    lines += [f"| {' | '.join(map(str, one))} |" for one in counts]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
