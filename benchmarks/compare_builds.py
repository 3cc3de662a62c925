"""Whether a build of geonorm is slower than another: ``python -m benchmarks.compare_builds OLD NEW``.

OLD and NEW are folders with src/geonorm and its compiled library. In every pass each build gets a process of its own;
the rows come in a new order, and within a row the two processes take turns, in random order. A pass gives one number
per row, the median over its turns of new over old. Its scatter over the passes is the noise: it contains what differs
between processes, such as the place of tensors in memory. A row differs if the interval for the mean of the
logarithms (Student's t) lies wholly outside ±2 %. Its level allows for the number of rows: one comparison of equal
builds in a hundred gives a false alarm. Ten minutes for all rows; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import t as student
from tqdm.auto import tqdm

ROOT = Path(__file__).parents[1]
LIBRARY = Path("src", "geonorm", "ops", "cpu", "libgeonorm.so")
SAME = 0.02  # a smaller difference is not reported
FALSE_ALARMS = 0.01  # of a comparison of equal builds
PASSES, TURNS, SECONDS = 8, 7, 0.02


class Verdict(NamedTuple):
    row: str
    ratio: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return self.low > 1 + SAME or self.high < 1 - SAME


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_builds", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rows", default="", help="only rows that contain this text, such as LayerNorm")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each build (default: %(default)s)")
    parser.add_argument("--passes", type=int, default=PASSES, help="3 or more (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="one shape per row")
    chosen = parser.parse_args(arguments)
    if chosen.passes < 3:
        parser.error(f"expected --passes of 3 or more (got {chosen.passes}): noise is judged by their scatter")
    for folder in (chosen.old, chosen.new):
        if complaint := fault(folder):
            parser.error(complaint)
    rows = [row for row in known_rows(not chosen.short) if chosen.rows in row]
    if not rows:
        parser.error(f"no row contains {chosen.rows!r}; there are: {'; '.join(known_rows(not chosen.short))}")
    pairs = compare(chosen.old, chosen.new, rows, chosen.passes, chosen.threads, not chosen.short)
    verdicts = [judge(row, ratios, len(rows)) for row, ratios in pairs.items()]
    print(table(verdicts))
    return any(verdict.differs and verdict.ratio > 1 for verdict in verdicts)


def fault(folder: Path) -> str | None:
    """Why a folder cannot be measured."""
    if not (folder / "src" / "geonorm" / "__init__.py").is_file():
        return f"expected a checkout of geonorm, with src/geonorm in it (got {folder})"
    if not (folder / LIBRARY).is_file():
        return f"{folder} has no {LIBRARY}: run python src/geonorm/csrc/build.py there"
    return None


def known_rows(full: bool) -> list[str]:
    from benchmarks import speed

    return [name_of(case) for case in speed.cases(full)]


def name_of(case: Any) -> str:
    return case.row if case.name in case.row else f"{case.row}, {case.name}"


def compare(
    old: Path, new: Path, rows: Sequence[str], passes: int, threads: int, full: bool, seed: int = 0
) -> dict[str, list[float]]:
    """For each row the ratio new over old of every pass."""
    shuffle = random.Random(seed)
    ratios: dict[str, list[float]] = {row: [] for row in rows}
    with tqdm(total=passes * len(rows), desc="comparing", unit="row", disable=None, leave=False) as bar:
        for _ in range(passes):
            with running(old, threads, full) as measure_old, running(new, threads, full) as measure_new:
                for row in shuffle.sample(list(rows), len(rows)):
                    bar.set_postfix_str(row)
                    turns = []
                    for _ in range(TURNS):
                        times = {side: side(row) for side in shuffle.sample([measure_old, measure_new], 2)}
                        turns.append(times[measure_new] / times[measure_old])
                    ratios[row].append(statistics.median(turns))
                    bar.update()
    return ratios


@contextlib.contextmanager
def running(folder: Path, threads: int, full: bool) -> Iterator[Callable[[str], float]]:
    """A process that uses the build in a folder; gives a function that times a row there."""
    own = {"PYTHONPATH": os.pathsep.join([str(folder.resolve() / "src"), str(ROOT)]), "GEONORM_BACKEND": "native"}
    environment = {**os.environ, **own}
    start = "from benchmarks.compare_builds import serve; serve()"
    command = [sys.executable, "-c", start, str(folder.resolve()), str(threads), str(full)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin
    assert process.stdout

    def measure(row: str) -> float:
        print(row, file=process.stdin, flush=True)
        answer = process.stdout.readline()  # type: ignore[union-attr]
        if not answer:
            raise RuntimeError(f"the build in {folder} failed at {row}; its message is above")
        return float(json.loads(answer))

    try:
        yield measure
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def serve() -> None:
    """In a process of its own: read rows, write the seconds of a call each."""
    import torch

    import geonorm
    from benchmarks.speed.cases import NATIVE, cases
    from benchmarks.speed.timing import repeats, seconds_of
    from geonorm.ops import describe_backend

    folder, threads, full = sys.argv[1:]
    torch.set_num_threads(int(threads))
    if not Path(geonorm.__file__).is_relative_to(folder):
        raise SystemExit(f"expected the geonorm in {folder} (got {geonorm.__file__})")
    if describe_backend()["backend"] != "native":
        raise SystemExit(f"the kernels do not run: {describe_backend()['because']}")
    known = {name_of(case): case for case in cases(full == "True")}
    at, call, number = "", None, 0
    for line in sys.stdin:
        if (row := line.rstrip("\n")) != at:
            call = None  # its tensors go before the next ones come
            calls, _ = known[row].only([NATIVE]).work()
            at, call = row, calls[NATIVE]
            number = repeats(call, SECONDS)
        assert call
        print(json.dumps(seconds_of(call, number)), flush=True)


def judge(row: str, ratios: Sequence[float], rows: int) -> Verdict:
    """The mean ratio and its interval, at a level that allows for the number of rows."""
    logarithms = [math.log(ratio) for ratio in ratios]
    middle, number = statistics.fmean(logarithms), len(ratios)
    quantile = float(student.ppf(1 - FALSE_ALARMS / rows / 2, number - 1))
    half = quantile * statistics.stdev(logarithms) / math.sqrt(number)
    return Verdict(row, math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def table(verdicts: Sequence[Verdict]) -> str:
    """The rows that differ, the slowest first, and how well the others were measured."""
    found = sorted((verdict for verdict in verdicts if verdict.differs), key=lambda verdict: -verdict.ratio)
    rest = [verdict for verdict in verdicts if not verdict.differs]
    lines = []
    for verdict in found:
        word = "slower" if verdict.ratio > 1 else "faster"
        lines.append(f"{word}  {verdict.ratio:5.2f}  ({verdict.low:.2f}–{verdict.high:.2f})  {verdict.row}")
    if rest:
        widest = max(rest, key=lambda verdict: verdict.high / verdict.low)
        lines.append(
            f"no difference beyond noise in {len(rest)} of {len(verdicts)} rows; the widest interval there: "
            f"{widest.low:.2f}–{widest.high:.2f} for {widest.row}"
        )
    return "time of the new build over the old one, with its interval\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
