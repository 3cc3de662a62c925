"""Damage to a store: found before runs are executed, and mended at the price of what was hit.

A row whose checksum does not fit is deleted, and its run is executed again. If SQLite cannot read the file, the rows
that can be read go to a new one; the damaged file stays beside it. A file that is no store is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .bars import say
from .sqlite_rows import rows_in
from .store import DEVICES, PATIENCE, TABLES, Store, StoreError, damaged, epoch_in, is_damage, results_in, settings_in

_KEY = re.compile("[0-9a-f]{16}")
_FLIPS = 8  # characters in which a damaged layout differs from ours; another version differs in length


def opened(path: str | Path) -> Store:
    """A store for a process that is going to execute runs: checked as a whole, and mended if it is damaged."""
    path = Path(path)
    try:
        if _trouble(path):
            _rescue(path)
        store = Store(path)
        _drop_damaged(path)
    except sqlite3.Error as error:
        raise StoreError(
            f"results in {path} are damaged and cannot be mended ({error}): free space, or allow writing to the folder"
        ) from error
    return store


def check(path: str | Path) -> None:
    """Raise if anything in a store is not as it was written; changes nothing."""
    path = Path(path)
    trouble = _trouble(path)
    if trouble:
        raise damaged(path, trouble)
    with _reading(path) as file:
        table = _Table.of(file)
    if table.bad:
        raise damaged(path, f"{table.lost} of {table.finished} finished runs, {len(table.bad)} rows in all")


class Rows:
    """Rows that are as they were written."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        self.epochs: dict[str, dict[int, tuple[str, float]]] = {}
        self.results: dict[str, tuple[str, float, Any]] = {}
        self.devices: dict[str, str] = {}

    @classmethod
    def of(cls, found: Iterable[tuple[Any, ...]]) -> Rows:
        """Those among rows of any table, told apart by their shape."""
        rows, results = cls(), []
        for row in found:
            if not row or not isinstance(row[0], str) or not _KEY.fullmatch(row[0]):
                continue
            if len(row) == 2:
                rows._take_settings(*row)
            elif len(row) == 4 and isinstance(row[1], int):
                rows._take_epoch(*row)
            elif len(row) == 4:
                results.append(row)
        gaps = set()
        for key, there in rows.epochs.items():  # what follows a gap is repeated
            unbroken = _unbroken(there)
            gaps |= {key} if unbroken < len(there) else set()
            rows.epochs[key] = {number: there[number] for number in range(1, unbroken + 1)}
        for row in results:
            if row[0] not in gaps:
                rows._take_results(*row)
        if rows.devices:  # it may be the device that is damaged: such a run must be free to begin anew
            for key in {row[0] for row in results} - rows.results.keys():
                rows.epochs.pop(key, None)
                rows.devices.pop(key, None)
        return rows

    def _take_settings(self, key: str, text: Any) -> None:
        if not isinstance(text, str):
            return
        try:
            settings_in(text, key)
        except ValueError:
            if not text.startswith("{"):
                self.devices[key] = text
        else:
            self.runs[key] = text

    def _take_epoch(self, key: str, number: int, text: Any, seconds: Any) -> None:
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            epoch_in(text, key, number, float(seconds))
            self.epochs.setdefault(key, {})[number] = (text, float(seconds))

    def _take_results(self, key: str, text: Any, seconds: Any, host: Any) -> None:
        number, device = len(self.epochs.get(key, ())), self.devices.get(key, "cpu")
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            results_in(text, key, float(seconds), number, device)
            self.results[key] = (text, float(seconds), host if isinstance(host, str) else None)

    def write(self, path: Path) -> None:
        """A new store with these rows."""
        Store(path)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            file.executemany("INSERT INTO runs VALUES (?, ?)", self.runs.items())
            epochs = [(key, number, *row) for key, there in self.epochs.items() for number, row in there.items()]
            file.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?)", epochs)
            file.executemany("INSERT INTO results VALUES (?, ?, ?, ?)", [(k, *row) for k, row in self.results.items()])
            if self.devices:
                file.execute(DEVICES)
                file.executemany("INSERT INTO devices VALUES (?, ?)", self.devices.items())
            file.execute("COMMIT")


class _Table(NamedTuple):
    """The rows of a store that SQLite can read: the damaged ones, and how many runs are finished and lost."""

    bad: list[tuple[str, int]]  # table and number of the row
    finished: int
    lost: int

    @classmethod
    def of(cls, file: sqlite3.Connection) -> _Table:
        found: dict[str, list[tuple[Any, ...]]] = {}
        for table in ("runs", "epochs", "results", "devices"):
            with contextlib.suppress(sqlite3.OperationalError) if table == "devices" else contextlib.nullcontext():
                found[table] = file.execute(f"SELECT rowid, * FROM {table}").fetchall()
        good = Rows.of(row[1:] for rows in found.values() for row in rows)
        bad = [("runs", row[0]) for row in found["runs"] if row[1] not in good.runs]
        bad += [("epochs", row[0]) for row in found["epochs"] if row[2] not in good.epochs.get(row[1], ())]
        bad += [("devices", row[0]) for row in found.get("devices", ()) if row[1] not in good.devices]
        lost = [("results", row[0]) for row in found["results"] if row[1] not in good.results]
        claims = file.execute("SELECT rowid, host, pid, born, seen FROM claims").fetchall()
        bad += [("claims", row[0]) for row in claims if tuple(map(type, row[1:])) != (str, int, str, float)]
        return cls([*bad, *lost], len(found["results"]), len(lost))


def _unbroken(numbers: Iterable[int]) -> int:
    """How many numbers from 1 there are without a gap."""
    there, last = set(numbers), 0
    while last + 1 in there:
        last += 1
    return last


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file; texts that are none come as bytes."""
    with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as file:
        file.text_factory = _decoded
        yield file


def _decoded(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _trouble(path: Path) -> str:
    """Why SQLite cannot read the whole file; empty if it can, or if the reason is no damage."""
    if not path.is_file() or not path.stat().st_size:
        return ""
    try:
        with _reading(path) as file:  # SQLite applies a journal first, if a process was killed while it wrote
            (told,) = file.execute("PRAGMA integrity_check(1)").fetchone()
            layout = [text for (text,) in file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        with path.open("rb") as plain:
            versions = plain.read(20)[18:]
    except sqlite3.Error as error:
        return str(error) if is_damage(error) else ""
    except OSError:
        return ""  # the store says it better
    if told != "ok":
        return str(told).replace("\n", ", ")
    if versions not in (b"\1\1", b"\2\2"):
        return "the versions in its header"
    return "its layout" if _is_nearly_ours(layout) else ""


def _statements() -> list[str]:
    """The statements that a store is made with, as SQLite keeps them."""
    with contextlib.closing(sqlite3.connect(":memory:")) as file:
        file.executescript(TABLES)
        return [text for (text,) in file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]


def _is_nearly_ours(layout: list[Any]) -> bool:
    pairs = list(zip(layout, _statements(), strict=False))
    if len(pairs) < 4 or any(not isinstance(one, str) or len(one) != len(ours) for one, ours in pairs):
        return False
    differing = [bool(a != b) for one, ours in pairs for a, b in zip(one, ours, strict=True)]
    return 0 < sum(differing) <= _FLIPS


def _rescue(path: Path) -> None:
    """Write what can be read to a new file in the place of the damaged one."""
    with _alone(path):
        trouble = _trouble(path)
        if not trouble:
            return  # another process has mended it meanwhile
        with path.open("rb") as plain, _nobody_writes(path):  # in this order: closing a file drops the locks on it
            journal = path.with_name(f"{path.name}-journal")
            if journal.exists() and journal.stat().st_size:
                raise StoreError(
                    f"{path} is damaged ({trouble}), and SQLite cannot apply {journal.name} beside it: "
                    "copy both elsewhere, then delete the journal and start again"
                )
            data = plain.read()
            rows = Rows.of(rows_in(data))
            if not rows.runs and not any(statement.encode() in data for statement in _statements()):
                raise StoreError(
                    f"expected results in {path} (got a file that is damaged or not a results file: {trouble}): "
                    "nothing in it can be read; move it away to start over, or name another with --store"
                )
            kept = _put_in_place(rows, data, path)
    say(
        f"{path} was damaged ({trouble}): {len(rows.results)} finished runs were saved, all others are run again. The "
        f"damaged file is kept as {kept}"
    )


def _put_in_place(rows: Rows, data: bytes, path: Path) -> Path:
    """Write the rows to a new file, keep the damaged one under another name, and put the new one in its place."""
    fresh = path.with_name(f"{path.name}.rescued-{os.getpid()}")
    try:
        rows.write(fresh)
        kept = next(name for name in _names_beside(path) if not name.exists())
        try:
            os.link(path, kept)  # at every moment there is a file in its place
        except OSError:  # a file system without links
            kept.write_bytes(data)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    return kept


def _names_beside(path: Path) -> Iterator[Path]:
    number = 1
    while True:
        yield path.with_name(f"{path.stem}-damaged{'' if number == 1 else f'-{number}'}{path.suffix}")
        number += 1


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for other processes that mend the same file. The lock is SQLite's, on a file beside it: a kill frees it."""
    lock = path.with_name(f"{path.name}-rescue")
    with contextlib.closing(sqlite3.connect(lock, timeout=PATIENCE, isolation_level=None)) as file:
        file.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.unlink()


@contextlib.contextmanager
def _nobody_writes(path: Path) -> Iterator[None]:
    """Keep others from writing to a damaged file, unless it is so damaged that SQLite lets nobody write."""
    with _reading(path) as file:
        try:
            file.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
        yield


def _drop_damaged(path: Path) -> None:
    """Delete the rows that are not as they were written, so that their runs are executed again."""
    with _reading(path) as file:
        if not _Table.of(file).bad:
            return
        file.execute("BEGIN IMMEDIATE")
        table = _Table.of(file)
        for name, number in set(table.bad):
            file.execute(f"DELETE FROM {name} WHERE rowid = ?", (number,))
        file.execute("COMMIT")
    others = len(table.bad) - table.lost
    more = f"; {others} other damaged rows are written again" if others else ""
    say(f"{table.lost} of {table.finished} finished runs in {path} are damaged and run again{more}")
