"""The kinds of faults, and what must hold after each.

After a fault the command is started again, without a change or with the cure that it names. It must end, every figure
must be that of a reference that nothing disturbed, and no finished run may be executed again unless its own rows were
damaged.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

import studies
from geonorm.cli import main
from geonorm.lab import Store, runner
from geonorm.lab.rescue import Rows, check
from geonorm.lab.sqlite_rows import rows_in
from studies import results

from .own import LOG, make_model
from .processes import Job, start

OWN = Path(__file__).with_name("own.py")
RUNS, EPOCHS = 24, 6
STUDY = "guard-digits"
_LONGER = 60  # epochs, of runs that are stopped in the middle


class Count(NamedTuple):
    """What became of the faults of a kind.

    Attributes:
        fault: the kind.
        command: that met it.
        injected: number of faults.
        survived: how many of them ended as they must, after the command was started again.
        hit: finished runs whose own rows were damaged, which were found and executed again.
        lost: finished runs that were executed again for no reason, and figures or files that were not as they must be.
    """

    fault: str
    command: str
    injected: int
    survived: int
    hit: int
    lost: int


class Broken(AssertionError):
    """A fault that was not survived."""


class Tally:
    """Counts the faults of a kind; ``one`` is the body of one fault."""

    def __init__(self, fault: str, command: str, say: Callable[[str], None]) -> None:
        self.fault, self.command, self.say = fault, command, say
        self.injected = self.survived = self.hit = self.lost = 0

    @contextmanager
    def some(self, number: Callable[[], int]) -> Iterator[None]:
        """The body injects faults; all of them survive, or none that were injected in it."""
        before = self.injected
        try:
            yield
        except (Broken, OSError, ValueError) as broken:
            self.lost += 1
            self.say(f"{self.fault}, {self.command}: fault {before + 1}: {broken}")
        else:
            self.survived += number()
        self.injected = before + number()

    def count(self) -> Count:
        return Count(self.fault, self.command, self.injected, self.survived, self.hit, self.lost)


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


# ---- compare ----


class Comparisons:
    """``geonorm compare`` of many short runs, and what it gives undisturbed."""

    def __init__(self, folder: Path, epochs: int = EPOCHS, runs: int = RUNS) -> None:
        self.folder, self.epochs, self.runs = folder, epochs, runs
        self.whole = folder / f"whole-{epochs}" / "r.sqlite"
        self.begun = folder / "begun"  # the seeds of the runs that were begun
        os.environ[LOG] = str(self.begun)
        began = time.monotonic()
        code, said = self.job(self.whole).end()
        expect(code == 0, f"no reference: {said}")
        self.seconds = time.monotonic() - began
        self.figures = contents(self.whole)
        self.seeds = {one.key: str(one.choices["seed"]) for one in Store(self.whole).finished()}

    def job(
        self,
        store: Path,
        workers: int = 1,
        before: Callable[[], None] | None = None,
        log: str = "log.txt",
    ) -> Job:
        store.parent.mkdir(parents=True, exist_ok=True)
        words = ["compare", "--data", f"{OWN}:make_data", "--model", f"{OWN}:make_model", "--norms", "own"]
        words += ["--seeds", *map(str, range(self.runs)), "--epochs", str(self.epochs), "--workers", str(workers)]
        words += ["--store", str(store), "--out", str(store.with_suffix(".report"))]

        def work() -> int:
            if before is not None:
                before()
            return main(words)

        return start(work, self.folder / log)

    def begun_again(self, done: set[str]) -> set[str]:
        """Which of some runs were begun since the last question."""
        seeds = set(self.begun.read_text().split()) if self.begun.exists() else set()
        self.begun.unlink(missing_ok=True)
        return {key for key in done if self.seeds[key] in seeds}

    def continued(self, store: Path, done: set[str], workers: int = 1, hit: AbstractSet[str] = frozenset()) -> int:
        """Start the command again until it ends; how many of the runs that were hit were executed again."""
        self.begun.unlink(missing_ok=True)
        for _ in range(60):
            code, said = self.job(store, workers).end()
            expect("Traceback" not in said, said)
            if code == 0:
                break
            expect("start again later" in said, f"exit code {code}: {said}")
            time.sleep(0.2)
        expect(code == 0, f"it does not end: {said}")
        self.verify(store)
        again = self.begun_again(done)
        expect(again <= hit, f"{len(again - hit)} finished runs were executed again")
        return len(again)

    def verify(self, store: Path, some: bool = False) -> set[str]:
        """The finished runs of a store, whose figures must be those of the reference."""
        found = contents(store)
        expect(some or found.keys() == self.figures.keys(), f"{len(found)} of {len(self.figures)} runs are done")
        changed = [key for key, figures in found.items() if figures != self.figures[key]]
        expect(not changed, f"the figures of {len(changed)} runs have changed")
        return set(found)


def contents(store: Path) -> dict[str, Any]:
    """The figures of finished runs; a copy is looked at, so that the next command finds what the fault left."""
    if not store.exists():
        return {}
    with tempfile.TemporaryDirectory() as folder:
        for path in (store, store.with_name(f"{store.name}-journal")):
            with suppress(FileNotFoundError):
                shutil.copyfile(path, Path(folder) / path.name)
        copy = Store(Path(folder) / store.name)
        check(copy.path)
        return {one.key: repr((one.figures, copy.curve(one.key))) for one in copy.finished()}


def killed_comparisons(whole: Comparisons, chance: random.Random, tally: Tally, kills: int, workers: int) -> None:
    """A few kills for each comparison, at random moments of all that it does; then it must end."""
    seconds = whole.seconds + (3.0 if workers > 1 else 0.0)  # workers import torch
    while tally.injected < kills:
        store = fresh(whole.folder) / "r.sqlite"
        number = 0

        def so_far() -> int:
            return number  # noqa: B023

        with tally.some(so_far):
            done: set[str] = set()
            whole.begun_again(done)
            for _ in range(min(5, kills - tally.injected)):
                job = whole.job(store, workers)
                time.sleep(chance.uniform(0, seconds))
                if job.has_ended():
                    job.end()
                    break
                job.kill(everything=chance.random() < 0.7)
                number += 1
                expect(not whole.begun_again(done), "finished runs were executed again")
                done = whole.verify(store, some=True)
            whole.continued(store, whole.verify(store, some=True), workers)


def fresh(folder: Path) -> Path:
    """An empty folder for one fault."""
    place = folder / "one"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def full_disks(whole: Comparisons, chance: random.Random, tally: Tally, number: int) -> None:
    """A small file system in memory, which is full before the comparison is over, and then gets more room."""
    needed = whole.whole.stat().st_size
    for _ in range(number):
        place = fresh(whole.folder)
        size = chance.randrange(needed // 4, needed) // 4096 * 4096
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
        try:
            with tally.some(lambda: 1):
                code, said = whole.job(place / "r.sqlite").end()
                expect(code == 1 and "Traceback" not in said, f"exit code {code}: {said}")
                expect("free space" in said or "No space left" in said, f"no word about the disk: {said}")
                subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
                whole.continued(place / "r.sqlite", whole.verify(place / "r.sqlite", some=True))
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)


def can_mount(folder: Path) -> bool:
    """Whether file systems can be mounted here."""
    place = fresh(folder)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], capture_output=True).returncode:
        return False
    subprocess.run(["umount", str(place)], check=True)
    return True


def read_only_folders(whole: Comparisons, chance: random.Random, tally: Tally, number: int) -> None:
    """A folder that cannot be written, in the middle of a comparison."""
    for _ in range(number):
        place = fresh(whole.folder)
        store = place / "r.sqlite"
        with tally.some(lambda: 1):
            job = whole.job(store)
            time.sleep(chance.uniform(0.2, 0.8) * whole.seconds)
            job.kill()
            done = whole.verify(store, some=True)
            before = {path: path.read_bytes() for path in place.iterdir() if path.is_file()}
            with read_only(place):
                code, said = whole.job(store).end()
            expect(code == 1 and "Traceback" not in said, f"exit code {code}: {said}")
            expect("writable" in said or "cannot be written" in said, f"no word about the folder: {said}")
            expect(all(path.read_bytes() == data for path, data in before.items()), "a file has changed")
            whole.continued(store, done)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Root may write everywhere except where a file system is read-only."""
    if os.geteuid():
        place.chmod(0o500)
    else:
        subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
    try:
        yield
    finally:
        if os.geteuid():
            place.chmod(0o700)
        else:
            subprocess.run(["umount", str(place)], check=True)


def together(whole: Comparisons, chance: random.Random, tally: Tally, number: int) -> None:
    """Two commands at once on one store; one of them is killed in every second case."""
    for index in range(number):
        store = fresh(whole.folder) / "r.sqlite"
        with tally.some(lambda: 1):
            whole.begun.unlink(missing_ok=True)
            first = whole.job(store)
            second = whole.job(store, log="second.txt")
            if index % 2:
                time.sleep(chance.uniform(0, whole.seconds))
                if not first.has_ended():
                    first.kill()
            else:
                code, said = first.end()
                expect(code in (0, 1) and "Traceback" not in said, f"exit code {code}: {said}")
            code, said = second.end()
            expect(code in (0, 1) and "Traceback" not in said, f"exit code {code}: {said}")
            seeds = whole.begun.read_text().split()
            expect(len(seeds) - len(set(seeds)) <= index % 2, f"runs were executed twice: {sorted(seeds)}")
            whole.continued(store, whole.verify(store, some=True))


def clocks_set_back(whole: Comparisons, chance: random.Random, tally: Tally, number: int) -> None:
    """A clock that jumps during a run; it was begun on another machine, whose process is gone, by a clock ahead."""
    now = time.time

    def elsewhere() -> None:
        socket.gethostname = lambda: "elsewhere"

    def jumping() -> None:
        jumps = random.Random(0)
        time.time = lambda: now() - 3600 - jumps.randrange(3600)

    for _ in range(number):
        store = fresh(whole.folder) / "r.sqlite"
        with tally.some(lambda: 1):
            job = whole.job(store, before=elsewhere)
            time.sleep(chance.uniform(0.2, 0.8) * whole.seconds)
            job.kill()
            done = whole.verify(store, some=True)
            code, said = whole.job(store, before=jumping).end()
            expect(code == 0 and "Traceback" not in said, f"exit code {code}: {said}")
            whole.continued(store, done)


def damaged_stores(whole: Comparisons, chance: random.Random, tally: Tally, number: int, cut: bool) -> None:
    """A finished store that is cut off, or has one flipped bit."""
    good = whole.whole.read_bytes()
    size = int.from_bytes(good[16:18], "big")
    for _ in range(number):
        store = fresh(whole.folder) / "r.sqlite"
        place = chance.randrange(1 if cut else 0, len(good))
        data = bytearray(good[:place] if cut else good)
        if not cut:
            data[place] ^= 1 << chance.randrange(8)
        store.write_bytes(data)
        with tally.some(lambda: 1):
            code, said = start(lambda: main(["report", str(store)]), whole.folder / "report.txt").end()  # noqa: B023
            expect("Traceback" not in said, said)
            expect(code == 1 or not cut, "a report of a store that was cut off")
            if cut and place < size:  # nothing in it can be read, which is said
                code, said = whole.job(store).end()
                expect(code == 1 and "move it away" in said, f"exit code {code}: {said}")
                expect(store.read_bytes() == data, "the file has changed")
                store.unlink()
            hit = hit_by(good, range(place // size, len(good) // size if cut else place // size + 1), size)
            tally.hit += whole.continued(store, set(whole.figures), hit=hit)


def hit_by(data: bytes, pages: range, size: int) -> set[str]:
    """The runs that have a row in some pages of a store, or in the first one, with which all are lost if it is cut."""
    if pages.start == 0 and len(pages) > 1:
        return Rows.of(rows_in(data)).results.keys() | set()
    left = bytearray(data)
    left[pages.start * size + (100 if not pages.start else 0) : pages.stop * size] = bytes(
        len(pages) * size - (100 if not pages.start else 0)
    )
    before, after = Rows.of(rows_in(data)), Rows.of(rows_in(bytes(left)))
    return {key for key in before.results if _of(before, key) != _of(after, key)}


def _of(rows: Rows, key: str) -> tuple[Any, ...]:
    return rows.runs.get(key), rows.epochs.get(key), rows.results.get(key)


def flipped_states(whole: Comparisons, chance: random.Random, tally: Tally, number: int) -> None:
    """The saved state of an unfinished run with one flipped bit."""
    for _ in range(number):
        with tally.some(lambda: 1):
            store, state = stopped_with_a_state(whole, chance)
            data = bytearray(state.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            state.write_bytes(data)
            whole.continued(store, whole.verify(store, some=True))


def stopped_with_a_state(whole: Comparisons, chance: random.Random) -> tuple[Path, Path]:
    """A store and the saved state of a run that was killed, which is written after every epoch."""

    def often() -> None:
        runner.SAVE_EVERY = 0.0

    while True:
        store = fresh(whole.folder) / "r.sqlite"
        job = whole.job(store, before=often)
        states = (store.parent / "r-unfinished").glob
        while not job.has_ended() and not list(states("[0-9a-f]*.pt")):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.3))
        job.kill()
        found = list(states("[0-9a-f]*.pt"))
        if found:
            return store, found[0]


# ---- reproduce ----


class Studies:
    """``geonorm reproduce`` of a smoke, and what it gives undisturbed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        began = time.monotonic()
        code, said = self.job(folder / "whole-study").end()
        expect(code == 0, f"no reference: {said}")
        self.seconds = time.monotonic() - began
        self.records = self.read(folder / "whole-study")

    def job(self, folder: Path) -> Job:
        folder.mkdir(parents=True, exist_ok=True)
        words = ["reproduce", STUDY, "--smoke", "--workers", "1", "--out", str(folder)]
        return start(lambda: main(words), folder / "log.txt")

    def file(self, folder: Path) -> Path:
        return results.path_in(folder, STUDY, "laptop", smoke=True)

    def read(self, folder: Path) -> list[Any]:
        return [record._replace(seconds=0.0) for record in results.read(self.file(folder)).records]

    def continued(self, folder: Path, done: int) -> None:
        """Start the command again: it must end, with the same figures, and execute what was not done."""
        code, said = self.job(folder).end()
        expect(code == 0 and "Traceback" not in said, f"exit code {code}: {said}")
        expect(self.read(folder) == self.records, "the figures have changed")
        found = re.search(r"^(\d+) runs?, 1 at a time", said, re.MULTILINE)
        executed = int(found[1]) if found else 0
        total = len({record.key for record in self.records})
        expect(executed == total - done, f"{executed} runs were executed; {done} of {total} were done")


def killed_studies(whole: Studies, chance: random.Random, tally: Tally, kills: int) -> None:
    while tally.injected < kills:
        folder = fresh(whole.folder)
        number = 0

        def so_far() -> int:
            return number  # noqa: B023

        with tally.some(so_far):
            for _ in range(min(5, kills - tally.injected)):
                job = whole.job(folder)
                time.sleep(chance.uniform(0, whole.seconds))
                if job.has_ended():
                    job.end()
                    break
                job.kill()
                number += 1
                done = contents(folder / f"{STUDY}-smoke.sqlite").keys()
                before = folder / "done.json"
                if before.exists():
                    expect(done >= set(json.loads(before.read_text())), "finished runs are gone")
                before.write_text(json.dumps(sorted(done)))
            whole.continued(folder, len(contents(folder / f"{STUDY}-smoke.sqlite")))


def flipped_lines(whole: Studies, chance: random.Random, tally: Tally, number: int) -> None:
    """One flipped bit in the lines of a study: the line is named; without it the command continues."""
    for _ in range(number):
        folder = fresh(whole.folder)
        shutil.copytree(whole.folder / "whole-study", folder, dirs_exist_ok=True)
        path = whole.file(folder)
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with tally.some(lambda: 1):
            for _ in range(3):
                code, said = whole.job(folder).end()
                expect("Traceback" not in said, said)
                if code == 0:
                    break
                found = re.search(r"in line (\d+) of", said)
                expect(found is not None, f"no line is named: {said}")
                lines = path.read_bytes().split(b"\n")
                del lines[int(found[1]) - 1]  # type: ignore[index]
                path.write_bytes(b"\n".join(lines))
            whole.continued(folder, len({record.key for record in whole.records}))


# ---- commands that write one file ----


def killed_writers(folder: Path, chance: random.Random, tally: Tally, kills: int, command: str) -> None:
    """``screen``, or ``diagnose --fix --save``, which recalibrates: there is the old file or the new one."""
    place = fresh(folder)
    state, saved, page = place / "model.pt", place / "fixed.pt", place / "page.html"
    torch.manual_seed(0)
    model = make_model()
    model[1].running_mean += 3.0  # type: ignore[index, operator]
    torch.save(model.state_dict(), state)
    words = [command, "--model", f"{OWN}:make_model", "--state", str(state), "--data", f"{OWN}:make_batches"]
    words += ["--out", str(page), *(["--fix", "--save", str(saved)] if command == "diagnose" else [])]
    log = place / "log.txt"
    began = time.monotonic()
    code, said = start(lambda: main(words), log).end()
    expect(code == 0, f"no reference: {said}")
    seconds = time.monotonic() - began
    outputs = [path for path in (saved, page) if path.exists()]
    new = {path: path.read_bytes() for path in outputs}
    model_file = state.read_bytes()
    for _ in range(kills):
        old = dict.fromkeys(outputs, b"what was there before")
        for path, data in old.items():
            path.write_bytes(data)
        with tally.some(lambda: 1):
            while True:
                job = start(lambda: main(words), log)
                time.sleep(chance.uniform(0, seconds))
                if not job.has_ended():
                    job.kill()
                    break
                job.end()
            for path in outputs:
                expect(path.read_bytes() in (old[path], new[path]), f"{path.name} is neither the old nor the new one")
            expect(state.read_bytes() == model_file, "the file of the model has changed")
            code, said = start(lambda: main(words), log).end()
            expect(code == 0, f"exit code {code}: {said}")
            expect(all(path.read_bytes() == data for path, data in new.items()), "another file than undisturbed")


def faults(folder: Path, quick: bool, say: Callable[[str], None]) -> Iterator[Callable[[], Count]]:
    """All kinds, each as a function that injects its faults and counts; the seeds are fixed."""
    few = 3 if quick else None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    studies.study(STUDY)  # imported once, not by every process
    short: list[Comparisons] = []
    study: list[Studies] = []

    def comparisons() -> Comparisons:
        if not short:
            short.append(Comparisons(folder))
        return short[0]

    def a_study() -> Studies:
        if not study:
            study.append(Studies(folder))
        return study[0]

    def kind(
        fault: str, command: str, number: int, inject: Callable[[random.Random, Tally, int], None]
    ) -> Callable[[], Count]:
        def count() -> Count:
            tally = Tally(fault, command, say)
            inject(random.Random(f"{fault} {command}"), tally, few or number)
            return tally.count()

        count.__doc__ = f"{fault}, {command}"
        return count

    yield kind(
        "kill -9", "compare, two workers", 50, lambda c, t, n: killed_comparisons(comparisons(), c, t, n, workers=2)
    )
    yield kind("kill -9", "reproduce", 50, lambda c, t, n: killed_studies(a_study(), c, t, n))
    yield kind("kill -9", "screen", 20, lambda c, t, n: killed_writers(folder, c, t, n, "screen"))
    yield kind(
        "kill -9", "diagnose --fix, recalibrating", 20, lambda c, t, n: killed_writers(folder, c, t, n, "diagnose")
    )
    mounts = can_mount(folder)
    if mounts:
        yield kind("full disk", "compare", 10, lambda c, t, n: full_disks(comparisons(), c, t, n))
    else:
        say("full disk, compare: skipped, nothing can be mounted here")
    if mounts or os.geteuid():
        yield kind("read-only folder", "compare", 5, lambda c, t, n: read_only_folders(comparisons(), c, t, n))
    else:
        say("read-only folder, compare: skipped, root may write everywhere and cannot mount here")
    yield kind("two commands on one store", "compare", 10, lambda c, t, n: together(comparisons(), c, t, n))
    yield kind("clock set back", "compare", 10, lambda c, t, n: clocks_set_back(comparisons(), c, t, n))
    yield kind("store cut off", "compare", 20, lambda c, t, n: damaged_stores(comparisons(), c, t, n, cut=True))
    yield kind(
        "flipped bit in the store", "compare", 50, lambda c, t, n: damaged_stores(comparisons(), c, t, n, cut=False)
    )
    yield kind(
        "flipped bit in a saved state",
        "compare",
        10,
        lambda c, t, n: flipped_states(Comparisons(folder, epochs=_LONGER, runs=2), c, t, n),
    )
    yield kind(
        "flipped bit in the lines of a study", "reproduce", 20, lambda c, t, n: flipped_lines(a_study(), c, t, n)
    )
