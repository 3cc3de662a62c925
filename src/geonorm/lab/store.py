"""Results on disk: one SQLite file, shared by several processes, that stays intact if a process is killed.

A *run* is one training with all its settings; its key is a hash of them. The store records which process works on a
run, a row per epoch, and the final figures. Rows are added, never changed: a run that resumes after a kill writes the
same rows again, and they must be equal. Runs on a device other than the CPU are listed in a table of their own, which
stores without them do not have.

Figures have a checksum behind them, and settings are checked by their key. Rows of older stores have no checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .seals import sealed, unsealed

PATIENCE = 60.0  # seconds that a writer waits for other processes
_SIGN_OF_LIFE = 300.0  # after this many seconds without one, a run on another machine counts as abandoned

# In one transaction, because several processes may start at once.
TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, choices TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, born TEXT NOT NULL, seen REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS epochs (
    key TEXT NOT NULL, epoch INTEGER NOT NULL, figures TEXT NOT NULL, seconds REAL, PRIMARY KEY (key, epoch)
);
CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, figures TEXT NOT NULL, seconds REAL, host TEXT);
COMMIT;
"""
_COLUMNS = {
    "runs": ["key", "choices"],
    "claims": ["key", "host", "pid", "born", "seen"],
    "epochs": ["key", "epoch", "figures", "seconds"],
    "results": ["key", "figures", "seconds", "host"],
}


DEVICES = "CREATE TABLE IF NOT EXISTS devices (key TEXT PRIMARY KEY, device TEXT NOT NULL)"
CPU = "cpu"  # where all other runs were trained


class StoreError(OSError):
    """The store cannot be read or written; the message says why and what to do."""


class Epoch(NamedTuple):
    """One epoch of a run: its number, from 1, its figures, and the seconds it took."""

    number: int
    figures: Mapping[str, Any]
    seconds: float


class RunProgress(NamedTuple):
    """The progress of a run: epochs done, the figures of the last one, and the seconds they took."""

    epoch: int
    figures: dict[str, Any]
    seconds: float


class Finished(NamedTuple):
    """A run that is done.

    Attributes:
        key: of the run.
        choices: its settings.
        figures: its results.
        seconds: how long it took, over all attempts.
        device: where it was trained: ``"cpu"``, or the name of a GPU.
    """

    key: str
    choices: dict[str, Any]
    figures: dict[str, Any]
    seconds: float
    device: str = CPU


def key_of(choices: Mapping[str, Any]) -> str:
    """A short hash of a run's settings."""
    return _hash(_text(choices))


def settings_in(text: str, key: str) -> dict[str, Any]:
    """The settings of a run from its row; raises ``ValueError`` if they are not those of its key."""
    if _hash(text) != key:
        raise ValueError("its settings are not those of its key")
    return _object(text)


def epoch_in(text: str, key: str, number: int, seconds: float) -> dict[str, Any]:
    """The figures of an epoch from its row; raises ``ValueError`` if the row is not as it was written."""
    return _object(unsealed(text, key, number, seconds))


def results_in(text: str, key: str, seconds: float, epochs: int, device: str = CPU) -> dict[str, Any]:
    """The results of a run from its row; raises ``ValueError`` if the row, or the number of epochs, is another."""
    return _object(unsealed(text, key, seconds, epochs, device))


class Store:
    """Runs and their results in a file; every process opens it for itself.

    Args:
        path: the file; created, with its folder, if it does not exist.

    Examples:
        >>> import tempfile
        >>> from geonorm.lab.store import Store
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(f"{folder}/results.sqlite")
        ...     key = store.add({"norm": "bn", "seed": 0})
        ...     claimed = store.claim(key)
        ...     store.finish(key, {"accuracy": 0.9}, seconds=1.0)
        ...     [(run.choices["norm"], run.figures) for run in store.finished()]
        [('bn', {'accuracy': 0.9})]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"expected a writable folder for the results (got {error})") from error
        with self._open() as file:
            if file.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                file.executescript(TABLES)
            self._check_layout(file)

    def _check_layout(self, file: sqlite3.Connection) -> None:
        """Raise for another kind of database, or a store of another version, without changing it."""
        for table, columns in _COLUMNS.items():
            found = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            if found != columns:
                raise StoreError(
                    f"expected results in {self.path} (got a database with {', '.join(found) or 'nothing'} in its "
                    f"table {table!r}): another file or another version of geonorm made it; name another with --store"
                )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: all of it is written, or nothing."""
        file = None
        try:
            file = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            file.execute("PRAGMA synchronous = FULL")
            yield file
        except sqlite3.Error as error:
            raise StoreError(self._advice(error)) from error
        finally:
            if file is not None:
                file.close()

    def _advice(self, error: sqlite3.Error) -> str:
        text = str(error)
        if is_damage(error):
            cure = (
                "it is damaged or not a results file; a comparison with it saves what can be read, "
                "or name another with --store"
            )
        elif "full" in text:
            cure = "the disk is full; free space and start again: everything so far is kept"
        elif "readonly" in text or "unable to open" in text:
            cure = "the file or its folder is not writable; change its permissions, or name another file with --store"
        elif "locked" in text:
            cure = f"another process has locked it for {PATIENCE:.0f} s; wait for that process, or end it"
        else:
            cure = "everything so far is kept; start again to continue"
        return f"results in {self.path}: {text}; {cure}"

    def add(self, choices: Mapping[str, Any]) -> str:
        """Register a run; returns its key."""
        return self.add_all([choices])[0]

    def add_all(self, several: Iterable[Mapping[str, Any]]) -> list[str]:
        """Register runs; returns their keys. Nothing is written for runs that are already registered."""
        texts = {key_of(choices): _text(choices) for choices in several}
        with self._open() as file:
            known = {key for (key,) in file.execute("SELECT key FROM runs")}
            news = [(key, text) for key, text in texts.items() if key not in known]
            if news:
                file.execute("BEGIN IMMEDIATE")
                file.executemany("INSERT OR IGNORE INTO runs VALUES (?, ?)", news)
                file.execute("COMMIT")
        return list(texts)

    def known(self) -> list[dict[str, Any]]:
        """The settings of all runs, done or not, in the order they were registered."""
        with self._open() as file:
            rows = file.execute("SELECT key, choices FROM runs ORDER BY rowid").fetchall()
        with self._intact():
            return [settings_in(choices, key) for key, choices in rows]

    def claim(self, key: str) -> bool:
        """Claim a run for this process. False if it is done, or if another process works on it."""
        me = (socket.gethostname(), os.getpid(), _birth_of(os.getpid()))
        with self._open() as file:
            file.execute("BEGIN IMMEDIATE")
            done = file.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone()
            other = file.execute("SELECT host, pid, born, seen FROM claims WHERE key = ?", (key,)).fetchone()
            free = done is None and (other is None or other[:3] == me or _is_abandoned(*other))
            if free:
                file.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", (key, *me, time.time()))
            file.execute("COMMIT")
        return free

    def release(self, key: str) -> None:
        """Release a claimed run: any process may resume it."""
        with self._open() as file:
            file.execute("DELETE FROM claims WHERE key = ?", (key,))

    def keep_device(self, key: str, device: str) -> None:
        """Note where a run is trained. Raises if it has epochs from another device, whose numbers differ."""
        with self._open() as file:
            before = _devices(file).get(key, CPU)
            if device == before:
                return
            done = file.execute("SELECT COUNT(*) FROM epochs WHERE key = ?", (key,)).fetchone()[0]
            if done:
                raise StoreError(
                    f"run {key} was begun on {before} ({done} epochs are stored), and this process is on {device}, "
                    "whose numbers differ: continue it there, or start over in another results file"
                )
            file.execute(DEVICES)
            file.execute("INSERT OR REPLACE INTO devices VALUES (?, ?)", (key, device))

    def epochs(self, key: str, news: Sequence[Epoch]) -> None:
        """Add the figures of epochs, and a sign of life. Epochs already stored must have the same figures."""
        with self._open() as file:
            file.execute("BEGIN IMMEDIATE")
            rows = file.execute("SELECT epoch, figures, seconds FROM epochs WHERE key = ?", (key,)).fetchall()
            there = {epoch: (figures, seconds) for epoch, figures, seconds in rows}
            file.executemany(
                "INSERT INTO epochs VALUES (?, ?, ?, ?)",
                [_epoch_row(key, one) for one in news if one.number not in there],
            )
            file.execute("UPDATE claims SET seen = ? WHERE key = ?", (time.time(), key))
            file.execute("COMMIT")
        for one in news:
            if one.number not in there:
                continue
            with self._intact():
                before = _text(epoch_in(there[one.number][0], key, one.number, there[one.number][1]))
            if before != _text(one.figures):
                raise StoreError(
                    f"epoch {one.number} of run {key} gave different figures than before ({before}, now "
                    f"{_text(one.figures)}): the code, a library or the machine has changed since; start a new store"
                )

    def finish(self, key: str, figures: Mapping[str, Any], seconds: float) -> None:
        """Store the final figures of a run."""
        with self._open() as file:
            file.execute("BEGIN IMMEDIATE")
            epochs = file.execute("SELECT COUNT(*) FROM epochs WHERE key = ?", (key,)).fetchone()[0]
            text = sealed(_text(figures), key, float(seconds), epochs, _devices(file).get(key, CPU))
            file.execute(
                "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", (key, text, seconds, socket.gethostname())
            )
            file.execute("DELETE FROM claims WHERE key = ?", (key,))
            file.execute("COMMIT")

    def finished(self) -> list[Finished]:
        """All runs that are done, in the order they were registered."""
        query = "SELECT key, choices, figures, seconds FROM runs JOIN results USING (key) ORDER BY runs.rowid"
        with self._open() as file:
            file.execute("BEGIN")  # another process may finish a run in between
            rows, devices = file.execute(query).fetchall(), _devices(file)
            epochs = dict(file.execute("SELECT key, COUNT(*) FROM epochs GROUP BY key"))
        found = []
        with self._intact():
            for key, choices, figures, seconds in rows:
                device = devices.get(key, CPU)
                results = results_in(figures, key, seconds, epochs.get(key, 0), device)
                found.append(Finished(key, settings_in(choices, key), results, seconds, device))
        return found

    def finished_keys(self) -> set[str]:
        """The keys of all runs that are done."""
        with self._open() as file:
            return {key for (key,) in file.execute("SELECT key FROM results")}

    def running(self) -> set[str]:
        """The keys of all runs that are claimed and not done."""
        with self._open() as file:
            return {key for (key,) in file.execute("SELECT key FROM claims")}

    def standing(self, key: str) -> RunProgress:
        """How far a run is, as of its last save."""
        query = "SELECT MAX(epoch), figures, seconds, TOTAL(seconds) FROM epochs WHERE key = ?"
        with self._open() as file:
            epoch, figures, last, seconds = file.execute(query, (key,)).fetchone()
        with self._intact():
            return RunProgress(epoch or 0, epoch_in(figures, key, epoch, last) if figures else {}, seconds)

    def curve(self, key: str) -> list[dict[str, Any]]:
        """The figures of a run, epoch by epoch."""
        query = "SELECT figures, epoch, seconds FROM epochs WHERE key = ? ORDER BY epoch"
        with self._open() as file:
            rows = file.execute(query, (key,)).fetchall()
        with self._intact():
            return [epoch_in(figures, key, epoch, seconds) for figures, epoch, seconds in rows]

    @contextlib.contextmanager
    def _intact(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise damaged(self.path, str(error)) from error

    def seconds(self, key: str) -> float:
        """How long the epochs of a run took."""
        with self._open() as file:
            return float(file.execute("SELECT TOTAL(seconds) FROM epochs WHERE key = ?", (key,)).fetchone()[0])


def damaged(path: Path, why: str) -> StoreError:
    """The error for a store that cannot be read as it was written."""
    return StoreError(
        f"results in {path} are damaged ({why}); run the same comparison again with this file: what is damaged runs "
        "again, and nothing else"
    )


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error is about the contents of the file, not about access to it."""
    words = ("not a database", "malformed", "unsupported file format", "Could not decode")
    return any(word in str(error) for word in words)


def _epoch_row(key: str, one: Epoch) -> tuple[str, int, str, float]:
    seconds = float(one.seconds)
    return key, one.number, sealed(_text(one.figures), key, one.number, seconds), seconds


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=True)


def _devices(file: sqlite3.Connection) -> dict[str, str]:
    """The devices of all runs that were begun elsewhere than on the CPU, by key."""
    if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'devices'").fetchone():
        return {}
    return dict(file.execute("SELECT key, device FROM devices"))


def _is_abandoned(host: str, pid: int, born: str, seen: float) -> bool:
    """Whether the process that claimed a run has ended: known for this machine, assumed after silence on another."""
    if host != socket.gethostname():
        return abs(time.time() - seen) > _SIGN_OF_LIFE  # a clock that was set back must not make it wait for hours
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _birth_of(pid) != born  # process numbers are reused


def _birth_of(pid: int) -> str:
    """The start time of a process, if the system reports it; empty for one that has ended and is still listed."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in ("Z", "X") else others[18]
    except (OSError, IndexError):
        return ""
