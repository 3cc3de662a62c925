"""``geonorm data``: list, fetch, check."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from geonorm.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of data, whatever this machine has."""
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    told = capsys.readouterr().out
    assert "digits           at hand  1797 digits" in told
    assert "cifar10          missing  60000 images" in told
    assert "download=True" in told
    assert main(["data", "list", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["digits"]["at_hand"] is True
    assert found["mutag"]["at_hand"] is False


def test_check_of_what_is_at_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "digits: good: 1438 samples to train on, 359 to test, 10 classes",
        "subpopulations: good: 2000 samples to train on, 2000 to test, 2 classes",
        "stripes: good: 512 samples to train on, 256 to test, 4 classes",
        "regular_graphs: good: 300 samples to train on, 300 to test, 3 classes",
    ]


def test_check_of_what_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "adult").mkdir()
    (folder / "adult" / "adult.data").write_text("39, State-gov\n")
    assert main(["data", "check", "digits", "adult"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("digits: good")
    assert said.err.startswith("adult: ")
    assert "adult.data" in said.err
    assert main(["data", "check", "adult", "--json"]) == 1
    assert [one["good"] for one in json.loads(capsys.readouterr().out)] == [False]


def test_fetch(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def download(archive: object, into: Path) -> None:
        (into / "cifar-100-python").mkdir()

    monkeypatch.setattr(sys.modules["geonorm.lab.data.sources"], "download", download)
    assert main(["data", "fetch", "cifar100"]) == 0
    assert capsys.readouterr().out == f"cifar100: {folder / 'cifar-100-python'}\n"
    monkeypatch.undo()
    monkeypatch.setenv("GEONORM_DATA", str(folder))
    assert main(["data", "fetch", "cifar100"]) == 0, "it is there: nothing is downloaded"
    assert main(["data", "fetch", "mutag"]) == 1
    assert "put its files into MUTAG/raw/" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["fetch", "check"])
def test_unknown_names(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", action, "cifar01"])
    assert stop.value.code == 2
    assert "did you mean 'cifar10'?" in capsys.readouterr().err


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEONORM_DATA", "/nowhere/at/all")
    assert main(["data", "list"]) == 1
    assert "create it, or unset the variable" in capsys.readouterr().err
