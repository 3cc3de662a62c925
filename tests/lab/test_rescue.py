"""Damage to a store: a wrong figure is never shown, what was not hit is kept, and what is no store is left alone."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geonorm.lab import Comparison, rescue
from geonorm.lab.rescue import check, opened
from geonorm.lab.sqlite_rows import rows_in
from geonorm.lab.store import Epoch, Store, StoreError

RUNS = [{"norm": "bn", "seed": seed, "note": "long " * 60} for seed in range(12)]
EPOCHS = 3


def execute(store: Store, device: str = "cpu") -> list[int]:
    """Fill in what is missing, as the lab does; the seeds of the runs that were executed."""
    executed = []
    for choices in RUNS:
        key = store.add(choices)
        if not store.claim(key):
            continue
        executed.append(choices["seed"])
        store.keep_device(key, device)
        chance = random.Random(choices["seed"])
        long = 400 if choices["seed"] == 5 else 3  # does not fit into a page
        news = [
            Epoch(number, {"loss": chance.random(), "all": [chance.random()] * long}, 0.5 * number)
            for number in range(1, EPOCHS + 1)
        ]
        store.epochs(key, news)
        store.finish(key, {"clean": {"accuracy": chance.random()}}, store.seconds(key))
    return executed


def contents(store: Store) -> list[Any]:
    return sorted((one.key, repr(one), repr(store.curve(one.key))) for one in store.finished())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("whole") / "r.sqlite")
    execute(store)
    return store


@pytest.fixture
def path(whole: Store, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(whole.path, tmp_path / "r.sqlite"))


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as file:
        for statement in statements:
            file.execute(statement)
    file.close()


def test_nothing_is_said_of_a_sound_store(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    check(path)
    assert not execute(opened(path))
    assert not capsys.readouterr().err
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["r.sqlite"]


def test_no_flipped_bit_gives_a_wrong_figure(whole: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In 40 places, ten of them on the page with the layout, whatever SQLite makes of it."""
    good, chance = whole.path.read_bytes(), random.Random(0)
    places = [chance.randrange(1200) for _ in range(10)] + [chance.randrange(len(good)) for _ in range(30)]
    repeated = 0
    for number, place in enumerate(places):
        path = tmp_path / f"{number}.sqlite"
        data = bytearray(good)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            shown = {one.key: one for one in Store(path).finished()}
        except StoreError:
            shown = {}
        assert all(one == shown.get(one.key, one) for one in whole.finished()), place
        executed = execute(opened(path))
        assert contents(Store(path)) == contents(whole), place
        assert len(executed) <= 4, place
        assert bool(executed) <= bool(capsys.readouterr().err), "it is said"
        repeated += len(executed)
        check(path)
    assert repeated


@pytest.mark.parametrize(("column", "table"), [("figures", "results"), ("seconds", "results"), ("seconds", "epochs")])
def test_a_damaged_run_is_told_and_executed_again(
    whole: Store, path: Path, capsys: pytest.CaptureFixture[str], column: str, table: str
) -> None:
    change(path, f"UPDATE {table} SET {column} = replace({column}, '0.5', '0.6') || '1' WHERE rowid IN (1, 8)")
    with pytest.raises(StoreError, match=r"damaged \(2 of 12 finished runs.*run the same comparison again"):
        Comparison.from_store(path)
    assert len(execute(opened(path))) == 2
    assert "2 of 12 finished runs in" in capsys.readouterr().err
    if column == "figures":
        assert contents(Store(path)) == contents(whole)
    check(path)


def test_settings_and_claims_that_are_damaged_cost_no_run(whole: Store, path: Path) -> None:
    """Both are written again."""
    change(
        path,
        "UPDATE runs SET choices = replace(choices, 'bn', 'cn') WHERE rowid = 3",
        f"INSERT INTO claims VALUES ('{'0' * 16}', CAST(x'ff' AS TEXT), 1, '1', 1.0)",
    )
    assert not execute(opened(path))
    assert contents(Store(path)) == contents(whole)


def test_what_follows_a_damaged_epoch_is_repeated(path: Path) -> None:
    """A state saved later is then not continued: it has more epochs than are stored."""
    key = Store(path).known()[0]
    unfinished = Store(path).finished()[0].key
    change(path, f"DELETE FROM results WHERE key = '{unfinished}'", "UPDATE epochs SET figures = '{}1' WHERE rowid = 2")
    store = opened(path)
    assert len(store.curve(unfinished)) == 1
    assert store.known()[0] == key
    assert len(store.finished()) == 11


def test_rows_of_older_stores_have_no_checksum(whole: Store, path: Path) -> None:
    for table in ("epochs", "results"):
        change(path, f"UPDATE {table} SET figures = substr(figures, 1, instr(figures, ' crc32:') - 1)")
    check(path)
    store = opened(path)
    assert not execute(store)
    assert contents(store) == contents(whole)
    path.write_bytes(path.read_bytes()[:-4096])
    assert len(execute(opened(path))) < 12
    assert contents(Store(path)) == contents(whole)


def test_the_device_of_a_run_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    execute(Store(path), "GPU of some kind")
    assert {one.device for one in Store(path).finished()} == {"GPU of some kind"}
    before = contents(Store(path))
    change(
        path, "UPDATE devices SET device = 'GPU of soem kind' WHERE rowid = 2", "DELETE FROM devices WHERE rowid = 4"
    )
    with pytest.raises(StoreError, match="damaged"):
        Store(path).finished()
    assert len(execute(opened(path), "GPU of some kind")) == 2
    assert contents(Store(path)) == before
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert not execute(opened(path), "GPU of some kind")
    assert contents(Store(path)) == before


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_a_store_that_was_cut_off(whole: Store, path: Path, capsys: pytest.CaptureFixture[str], share: float) -> None:
    damaged = path.read_bytes()[: int(share * path.stat().st_size)]
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="damaged"):
        Comparison.from_store(path)
    store = opened(path)
    saved = len(store.finished_keys())
    said = capsys.readouterr().err
    assert f": {saved} finished runs were saved, all others are run again" in said
    kept = path.with_name("r-damaged.sqlite")
    assert str(kept) in said
    assert kept.read_bytes() == damaged
    assert {one.name for one in path.parent.iterdir()} == {"r.sqlite", "r-damaged.sqlite"}
    assert saved >= 8 * (share > 0.9)
    assert len(execute(store)) == 12 - saved
    assert contents(store) == contents(whole)


def test_every_damaged_file_is_kept(path: Path) -> None:
    for name in ("r-damaged.sqlite", "r-damaged-2.sqlite"):
        path.write_bytes(b"x" + path.read_bytes()[1:])
        damaged = path.read_bytes()
        assert not execute(opened(path))
        assert path.with_name(name).read_bytes() == damaged


@pytest.mark.parametrize("data", [b"these are no results " * 400, b"SQLite format 3\0", b"\0" * 5000])
def test_what_is_no_store_is_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"expected results in .*not a results file.*move it away.*--store"):
        opened(path)
    assert path.read_bytes() == data
    assert [one.name for one in tmp_path.iterdir()] == ["r.sqlite"]


def test_a_store_of_another_version_is_left_alone(path: Path) -> None:
    change(path, "ALTER TABLE results ADD COLUMN score REAL")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another version of geonorm"):
        opened(path)
    assert path.read_bytes() == before


def forked(work: Callable[[], Any]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


def test_several_processes_mend_a_file_once(whole: Store, path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])
    children = [forked(lambda: opened(path)) for _ in range(4)]
    for child in children:
        os.waitpid(child, 0)
    assert {one.name for one in path.parent.iterdir()} == {"r.sqlite", "r-damaged.sqlite"}
    assert contents(Store(path)) == contents(whole)


def test_a_kill_while_mending_leaves_the_file(whole: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the new file takes its place; the next start begins again."""
    path.write_bytes(b"x" + path.read_bytes()[1:])
    damaged = path.read_bytes()

    def killed(*names: object) -> None:
        os._exit(0)

    monkeypatch.setattr("os.replace", killed)
    os.waitpid(forked(lambda: opened(path)), 0)
    monkeypatch.undo()
    assert path.read_bytes() == damaged
    assert not execute(opened(path))
    assert contents(Store(path)) == contents(whole)


def half_written(path: Path) -> None:
    """A process that is killed while SQLite writes: pages have changed, and the journal has what they were."""

    def work() -> None:
        file = sqlite3.connect(path, isolation_level=None)
        file.execute("PRAGMA cache_size = 1")
        file.execute("PRAGMA cache_spill = 1")
        file.execute("BEGIN IMMEDIATE")
        file.execute("UPDATE results SET figures = replace(figures, '0.', '9.')")
        file.execute("UPDATE epochs SET figures = replace(figures, '0.', '9.')")
        file.execute("UPDATE runs SET choices = replace(choices, 'long', 'lost')")
        os._exit(0)

    os.waitpid(forked(work), 0)


def test_a_journal_is_applied_before_anything_is_mended(
    whole: Store, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half_written(path)
    journal = path.with_name("r.sqlite-journal")
    assert journal.stat().st_size > 512, "else this tests nothing"
    assert path.read_bytes() != whole.path.read_bytes(), "else this tests nothing"
    assert not execute(opened(path))
    assert not capsys.readouterr().err
    assert contents(Store(path)) == contents(whole)
    assert not journal.exists()


def test_a_journal_that_stays_stops_the_mending(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])
    damaged = path.read_bytes()
    monkeypatch.setattr(rescue, "_trouble", lambda path: "malformed")
    monkeypatch.setattr(rescue, "_nobody_writes", lambda path: contextlib.nullcontext())
    path.with_name("r.sqlite-journal").write_bytes(b"journal")
    with pytest.raises(StoreError, match=r"cannot apply r\.sqlite-journal beside it"):
        opened(path)
    assert path.read_bytes() == damaged


def test_a_folder_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])
    damaged = path.read_bytes()

    def full(*rows: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(rescue.Rows, "write", full)
    with pytest.raises(StoreError, match=r"damaged and cannot be mended .*disk is full.* free space"):
        opened(path)
    assert path.read_bytes() == damaged
    assert [one.name for one in path.parent.iterdir()] == ["r.sqlite"]


def test_rows_are_read_as_sqlite_reads_them(tmp_path: Path) -> None:
    """All types, and texts from empty to longer than several pages, at their limits too."""
    path, chance = tmp_path / "any.sqlite", random.Random(0)
    numbers = [0, 1, -1, 127, -128, 2**15, 2**23, -(2**31), 2**47, -(2**62)]
    sizes = [0, 50, 4055, 4056, 4057, 4058, 4059, 4060, 4061, 4062, 8000, 30000]
    rows = [(number, float(number) / 3, "φ" * 3, None, bytes(7)) for number in numbers]
    rows += [(0, 0.5, "".join(chance.choices("abc", k=size)), None, b"") for size in sizes]
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE a (one, two, three, four, five)")
        file.executemany("INSERT INTO a VALUES (?, ?, ?, ?, ?)", rows)
    file.close()
    found = [row for row in rows_in(path.read_bytes()) if len(row) == 5 and row[0] != "table"]
    assert sorted(map(repr, found)) == sorted(map(repr, rows))
