"""``geonorm screen``: a table, a page, JSON, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from geonorm.cli import main

OWN = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    print("making the model")
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))


def batches(worst=255.0):
    coarse = torch.rand(100, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    x = nn.functional.interpolate(coarse, size=(12, 12), mode="bilinear")
    x[17] *= worst
    x[20, 0, 3, 3] = torch.nan
    yield from x.split(25)


def clean():
    return list(torch.cat(list(batches(1.0)))[:17].repeat(4, 1, 1, 1).split(20))


def shuffled():
    return torch.utils.data.DataLoader(torch.cat(list(batches())), batch_size=10, shuffle=True)


number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images.py").write_text(OWN)
    return tmp_path


def test_the_table_is_printed_and_the_page_has_pictures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", "--model", "images.py:make", "--data", "images.py:batches"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 of 100 samples look broken: 1 not finite, 1 too large.\n")
    assert "17 " in said.out
    assert "Page: out/screen.html" in said.out
    assert said.err == "running the code in images.py\nmaking the model\n"
    page = (here / "out" / "screen.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "data:image/png" in page  # a generator is made again for them


def test_json_and_a_state_dict(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from torch import nn

    torch.save(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)).state_dict(), here / "state.pt")
    arguments = ["--model", "images.py:make", "--data", "images.py:batches", "--state", "state.pt"]
    assert main(["screen", *arguments, "--out", "page.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["indices"] == [20, 17]
    assert [one["why"] for one in found["broken"]] == ["not finite", "too large"]
    assert len(found["scores"]) == found["samples"] == 100
    assert (here / "page.html").exists()


def test_clean_data_and_another_cut(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["screen", "--model", "images.py:make", "--data", "images.py:clean"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("Nothing broken among 68 samples.")
    assert main([*arguments, "--cut", "1e6"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "images.py:make", "--data", "images.py:number"], "iterable of batches"),
        (["--model", "images.py:make", "--data", "images.py:nothing"], "it is not defined there"),
        (["--model", "images.py:make", "--data", "images.py:shuffled"], "shuffle=False"),
        (["--model", "nowhere.py:make", "--data", "images.py:batches"], "does not exist"),
        (["--model", "images.py:make", "--data", "images.py:batches", "--state", "nothing.pt"], "nothing.pt"),
    ],
)
def test_errors_are_one_line_that_helps(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["screen", *arguments]) == 1
    told = capsys.readouterr().err.removeprefix("running the code in images.py\n").replace("making the model\n", "")
    assert told.startswith("geonorm: ")
    assert told.count("\n") == 1
    assert words in told


@pytest.mark.parametrize(
    "arguments",
    [["--cut", "0.1"], ["--cut", "nan"], ["--cut", "wide"], ["--input-shape", "3"], ["--model", "images.py"]],
)
def test_a_wrong_command_line_is_2(here: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["screen", "--model", "images.py:make", "--data", "images.py:batches", *arguments])
    assert stop.value.code == 2
