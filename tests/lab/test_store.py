"""The store: several processes, kills, full disks, damage."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geonorm.lab.store import Epoch, Store, StoreError, key_of

CHOICES = {"norm": "bn", "seed": 0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "results.sqlite")


def test_a_run_goes_in_and_comes_out(store: Store) -> None:
    key = store.add(CHOICES)
    assert key == key_of({"seed": 0, "norm": "bn"})
    assert store.claim(key)
    store.epochs(key, [Epoch(1, {"loss": 0.5}, 0.1)])
    store.epochs(key, [Epoch(2, {"loss": 0.25}, 0.2)])
    assert not store.finished_keys()
    store.finish(key, {"clean": {"accuracy": 0.9}}, store.seconds(key))
    (done,) = store.finished()
    assert done.choices == CHOICES
    assert done.figures == {"clean": {"accuracy": 0.9}}
    assert done.seconds == pytest.approx(0.3)
    assert store.curve(key) == [{"loss": 0.5}, {"loss": 0.25}]
    assert store.finished_keys() == {key}
    assert not store.claim(key)


def test_a_repeated_epoch_must_be_equal(store: Store) -> None:
    key = store.add(CHOICES)
    store.epochs(key, [Epoch(1, {"loss": 0.5}, 0.1)])
    store.epochs(key, [Epoch(1, {"loss": 0.5}, 9.9)])
    with pytest.raises(StoreError, match="gave different figures"):
        store.epochs(key, [Epoch(1, {"loss": 0.6}, 0.1)])
    assert store.curve(key) == [{"loss": 0.5}]


def test_not_a_number_is_kept(store: Store) -> None:
    key = store.add(CHOICES)
    store.epochs(key, [Epoch(1, {"loss": float("nan")}, 0.1)])
    store.epochs(key, [Epoch(1, {"loss": float("nan")}, 0.1)])
    assert store.curve(key)[0]["loss"] != store.curve(key)[0]["loss"]


def in_another_process(function: Callable[[], Any]) -> Any:
    """What a forked process says; it has ended then."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def claim_in_another_process(path: Path, key: str) -> bool:
    return bool(in_another_process(lambda: Store(path).claim(key)))


def test_claims(store: Store) -> None:
    key = store.add(CHOICES)
    assert claim_in_another_process(store.path, key)
    assert store.claim(key), "the process that claimed it has ended"
    assert store.claim(key), "one's own claim stays"
    assert not claim_in_another_process(store.path, key)
    store.release(key)
    assert claim_in_another_process(store.path, key)


def test_a_number_of_a_process_that_was_given_again(store: Store) -> None:
    key = store.add(CHOICES)
    with sqlite3.connect(store.path) as file:
        file.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?)", (key, socket.gethostname(), os.getppid(), "1", 0.0))
    assert store.claim(key)


def test_other_machines_are_believed_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    key = store.add(CHOICES)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    store.claim(key)
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert not store.claim(key)
    import time

    later = time.time() + 301
    monkeypatch.setattr("time.time", lambda: later)
    assert store.claim(key)


def test_a_clock_that_was_set_back_stops_no_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the run would wait for the clock to be again where it was."""
    key = store.add(CHOICES)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    store.claim(key)
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    import time

    earlier = time.time() - 3600
    monkeypatch.setattr("time.time", lambda: earlier)
    assert store.claim(key)


def test_a_process_that_has_ended_but_is_still_listed(store: Store) -> None:
    """As in a container, where nobody asks how it ended."""
    key = store.add(CHOICES)
    child = os.fork()
    if not child:
        store.claim(key)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert store.claim(key)
    os.waitpid(child, 0)


def test_no_run_is_claimed_twice(store: Store) -> None:
    """Three processes ask at the same time, and live until all have asked."""
    keys = [store.add({"seed": seed}) for seed in range(40)]
    reader, writer = os.pipe()
    gate, opening = os.pipe()
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            own = Store(store.path)
            mine = [key for key in keys if own.claim(key)]
            os.write(writer, (" ".join(mine) + "\n").encode())
            os.close(opening)
            os.read(gate, 1)
            os._exit(0)
        children.append(child)
    with os.fdopen(reader) as answers:
        claimed = [key for _ in children for key in answers.readline().split()]
    os.close(opening)
    for child in children:
        os.waitpid(child, 0)
    assert sorted(claimed) == sorted(keys)


def test_damaged(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    path.write_bytes(b"this is no database at all, but long enough to look like one" * 20)
    with pytest.raises(StoreError, match=r"results\.sqlite.*damaged.*--store"):
        Store(path)
    assert path.read_bytes().startswith(b"this is no database")


def test_damaged_figures(store: Store) -> None:
    store.finish(store.add(CHOICES), {"clean": {"accuracy": 0.9}}, 1.0)
    with sqlite3.connect(store.path) as file:
        file.execute("UPDATE results SET figures = replace(figures, ':', ';')")
        file.execute("UPDATE runs SET choices = replace(choices, ':', ';')")
    for read in (store.finished, store.known):
        with pytest.raises(StoreError, match=r"results\.sqlite are damaged .* run the same comparison again"):
            read()


def test_a_flipped_bit_in_a_figure_is_noticed(store: Store) -> None:
    """Each of these would otherwise be another figure, and no error."""
    key = store.add(CHOICES)
    store.epochs(key, [Epoch(1, {"loss": 0.5}, 0.1), Epoch(2, {"loss": 0.25}, 0.1)])
    store.finish(key, {"clean": {"accuracy": 0.9}}, 0.2)
    for change, read in (
        ("UPDATE results SET figures = replace(figures, '0.9', '0.8')", store.finished),
        ("UPDATE results SET seconds = 0.3", store.finished),
        ("DELETE FROM epochs WHERE epoch = 2", store.finished),
        ("UPDATE runs SET choices = replace(choices, 'bn', 'ln')", store.known),
        ("UPDATE epochs SET figures = replace(figures, '0.5', '0.7')", lambda: store.curve(key)),
        ("UPDATE epochs SET epoch = 3 WHERE epoch = 2", lambda: store.standing(key)),
        ("UPDATE epochs SET figures = CAST(x'ff7d' AS TEXT)", lambda: store.curve(key)),
    ):
        before = store.path.read_bytes()
        read()
        with sqlite3.connect(store.path) as file:
            file.execute(change)
        file.close()
        with pytest.raises(StoreError, match="damaged"):
            read()
        store.path.write_bytes(before)


def test_a_damaged_epoch_is_not_taken_for_changed_code(store: Store) -> None:
    key = store.add(CHOICES)
    store.epochs(key, [Epoch(1, {"loss": 0.5}, 0.1)])
    with sqlite3.connect(store.path) as file:
        file.execute("UPDATE epochs SET figures = replace(figures, '0.5', '0.7')")
    with pytest.raises(StoreError, match=r"damaged .*checksum does not fit"):
        store.epochs(key, [Epoch(1, {"loss": 0.5}, 0.1)])


@pytest.mark.parametrize("table", ["CREATE TABLE people (name)", "CREATE TABLE runs (key, choices, score)"])
def test_another_database_is_left_alone(tmp_path: Path, table: str) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as file:
        file.execute(table)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"expected results in .*other\.sqlite .*another version of geonorm.*--store"):
        Store(path)
    assert path.read_bytes() == before


def test_what_is_known_is_not_written_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished comparison can be looked at in a folder that cannot be written."""
    keys = store.add_all([CHOICES, {"seed": 1}])
    connect = sqlite3.connect

    def reading(path: Path, **named: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?mode=ro", uri=True, **named)

    monkeypatch.setattr(sqlite3, "connect", reading)
    assert Store(store.path).add_all([CHOICES, {"seed": 1}]) == keys
    with pytest.raises(StoreError, match="not writable"):
        store.add({"seed": 2})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="not writable"):
        Store(tmp_path / "results.sqlite")


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="writable folder"):
        Store(tmp_path / "file" / "results.sqlite")
    (tmp_path / "results.sqlite").mkdir()
    with pytest.raises(StoreError, match="not writable"):
        Store(tmp_path / "results.sqlite")


def test_a_full_disk_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    key = store.add(CHOICES)
    store.epochs(key, [Epoch(1, {"loss": 0.5}, 0.1)])
    connect = sqlite3.connect

    def small(*arguments: object, **named: object) -> sqlite3.Connection:
        file = connect(*arguments, **named)  # type: ignore[call-overload]
        pages = file.execute("PRAGMA page_count").fetchone()[0]
        file.execute(f"PRAGMA max_page_count = {pages}")
        return file  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(StoreError, match="disk is full; free space"):
        store.epochs(key, [Epoch(2, {"loss": [0.25] * 20000}, 0.1)])
    monkeypatch.undo()
    assert store.curve(key) == [{"loss": 0.5}]
    store.epochs(key, [Epoch(2, {"loss": 0.25}, 0.1)])
