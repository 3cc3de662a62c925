"""``geonorm diagnose``: a model from a module or a file, with a state_dict, on data or on random numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from geonorm.cli import main

MODEL = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def batches():
    return [(torch.randn(32, 4), torch.zeros(32))]


number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some_model.py").write_text(MODEL)
    return tmp_path


def test_findings_are_printed_and_the_page_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--model", "some_model.py:make", "--data", "some_model.py:batches"]) == 0
    out = capsys.readouterr().out
    assert "NOTE  0: redundant bias" in out
    assert "What to do: bias=False" in out
    assert (here / "out" / "diagnose.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_random_inputs_json_and_a_state_dict(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[1].running_var[0] = -1
    torch.save({"state_dict": model.state_dict()}, here / "state.pt")
    arguments = ["--model", "some_model:make", "--input-shape", "4", "--batch-size", "32", "--state", "state.pt"]
    assert main(["diagnose", *arguments, "--out", "page.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["synthetic"], found["samples"]) == (True, 64)
    assert [finding["kind"] for finding in found["findings"]] == ["negative variance", "redundant bias"]
    assert (here / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "nowhere.py:make", "--input-shape", "4"], "does not exist"),
        (["--model", "some_model.py:nothing", "--input-shape", "4"], "it is not defined there"),
        (["--model", "no_such_module:make", "--input-shape", "4"], "no_such_module"),
        (["--model", "some_model.py:batches", "--input-shape", "4"], "torch.nn.Module"),
        (["--model", "some_model.py:make", "--data", "some_model.py:number"], "iterable of batches"),
        (["--model", "some_model.py:make", "--input-shape", "4", "--state", "nothing.pt"], "nothing.pt"),
        (["--model", "some_model.py:make", "--input-shape", "4", "--state", "other.pt"], "does not fit"),
        (["--model", "some_model.py:make", "--input-shape", "4", "--state", "code.pt"], "tensors only"),
    ],
)
def test_errors_are_one_line_that_helps(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), here / "other.pt")
    torch.save(nn.Linear(3, 2), here / "code.pt")
    assert main(["diagnose", *arguments]) == 1
    told = capsys.readouterr().err.removeprefix("running the code in some_model.py\n")
    assert told.startswith("geonorm: ")
    assert words in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "some_model.py", "--input-shape", "4"], "expected module:function or file.py:function"),
        (["--model", "some_model.py:", "--input-shape", "4"], "expected module:function or file.py:function"),
        (["--model", "some_model.py:make", "--data", "make"], "expected module:function or file.py:function"),
        (["--model", "some_model.py:make", "--input-shape", "four"], "such as 3,32,32"),
        (["--model", "some_model.py:make", "--input-shape", "3,0"], "such as 3,32,32"),
        (["--model", "some_model.py:make", "--input-shape", "4", "--batch-size", "0"], "expected a number from 1"),
    ],
)
def test_a_wrong_command_line_is_2(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["diagnose", *arguments])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"not a state_dict at all", b"\x80\x02broken"])
def test_a_corrupt_state_is_called_corrupt(here: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    Path("broken.pt").write_bytes(content)
    code = main(["diagnose", "--model", "some_model.py:make", "--state", "broken.pt", "--input-shape", "4"])
    assert code == 1
    said = capsys.readouterr().err
    assert "broken.pt" in said
    assert "corrupt" in said
    assert said.count("\n") == 2  # the first says whose code runs


def test_functions_that_print_or_raise(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("talks.py").write_text("import torch\nprint('loaded')\ndef make():\n    return torch.nn.Linear(4, {}[0])\n")
    arguments = ["--input-shape", "4", "--json"]
    assert main(["diagnose", "--model", "talks.py:make", *arguments]) == 1
    announced = "running the code in talks.py\n"
    assert capsys.readouterr() == (
        "",
        f"{announced}loaded\ngeonorm: talks.py:make raised KeyError: 0 (talks.py, line 4)\n",
    )
    Path("talks.py").write_text("import torch\nprint('loaded')\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    assert main(["diagnose", "--model", "talks.py:make", *arguments]) == 0
    assert "findings" in json.loads(capsys.readouterr().out)


def test_code_is_announced_before_it_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once for each file or module, on stderr: a model is code, and somebody else may have written it."""
    code = "import sys, torch\nprint('it runs', file=sys.stderr)\ndef make():\n    return torch.nn.Linear(4, 2)\n"
    for name in ("a_strangers.py", "a_strangers_module.py"):
        Path(name).write_text(code)
    for where in ("a_strangers.py", "a_strangers_module"):
        assert main(["diagnose", "--model", f"{where}:make", "--input-shape", "4", "--json"]) == 0
        said = capsys.readouterr()
        assert said.err.splitlines() == [f"running the code in {where}", "it runs"]
        assert "findings" in json.loads(said.out)


@pytest.mark.parametrize("model", ["nowhere.py:make", "no_such_module:make", "no_such_package.module:make"])
def test_what_is_not_there_is_not_announced(here: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert main(["diagnose", "--model", model, "--input-shape", "4"]) == 1
    assert "running" not in capsys.readouterr().err


def test_batches_that_are_none_are_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.py").write_text("def batches():\n    return 7\n")
    assert main(["diagnose", "--model", "some_model.py:make", "--data", "odd.py:batches"]) == 1
    assert "expected --data odd.py:batches to return an iterable of batches" in capsys.readouterr().err


def test_a_model_that_does_not_run_gives_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--model", "some_model.py:make", "--input-shape", "7"]) == 1
    assert "does not run" in capsys.readouterr().out
