"""``--device``: a device that is not here is a mistake in words; one that is here is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from geonorm.cli import main
from geonorm.lab import Store
from geonorm.ops import using_backend
from helpers.pretend_cuda import OnCuda, pretend_cuda

OWN = ["--model", "own.py:make_model"]
BATCHES = """
import torch
from own import make_data, make_model


def batches():
    return torch.utils.data.DataLoader(make_data()[0], batch_size=20)
"""

COMMANDS = [
    ["compare"],
    ["reproduce", "popnorm-kappa"],
    ["diagnose", *OWN, "--input-shape", "2"],
    ["screen", *OWN, "--data", "more.py:batches"],
    ["bench"],
]


@pytest.fixture(autouse=True)
def _own_files(here: Path) -> None:
    (here / "more.py").write_text(BATCHES)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_device_that_is_not_here(command: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and what to do, before anything is begun."""
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--device", "cuda"])
    assert stopped.value.code == 2
    told = capsys.readouterr()
    assert "expected a device 'cuda'" in told.err
    assert "it needs an NVIDIA or AMD GPU and a torch built for it" in told.err
    assert "Traceback" not in told.err
    assert not told.out
    assert not (here / "out").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_unknown_device(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--device", "cude"])
    assert stopped.value.code == 2
    assert "did you mean cuda?" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_reports")
def test_compare(here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pretend_cuda() as log, using_backend("torch"):
        assert main(["compare", *tiny, "--device", "auto", "--store", "r.sqlite", "--json"]) == 0
    assert log.sent
    finished = Store("r.sqlite").finished()
    assert {one.device for one in finished} == {"cuda: a pretended GPU"}
    assert {one.choices["device"] for one in finished} == {"cuda"}
    assert {one["device"] for one in json.loads(capsys.readouterr().out)["finished"]} == {"cuda: a pretended GPU"}


def test_reproduce_keeps_results_of_devices_apart(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["reproduce", "geometry-batch", "--smoke", "--workers", "1", "--out", "out", "--json"]
    with pretend_cuda(), using_backend("torch"):
        assert main([*given, "--device", "cuda"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == "out/geometry-batch-cuda-smoke.md"
    assert "--preset laptop --device cuda --smoke" in Path(told["page"]).read_text()
    assert [path.name for path in Path("out/geometry-batch").iterdir()] == ["laptop-cuda-smoke.jsonl"]
    assert "Not complete" not in Path(told["page"]).read_text()


@pytest.mark.parametrize("command", ["diagnose", "screen"])
def test_the_users_model_is_moved(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its batches follow, one by one, and what is said is the same as on the CPU."""
    told = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        with pretend_cuda() as log, using_backend("torch"):
            main([command, *OWN, "--data", "more.py:batches", "--device", device, "--json"])
        told.append(capsys.readouterr().out)
        assert bool(log.sent) == (device == "cuda")
    assert json.loads(told[0]) == json.loads(told[1])


def test_the_state_of_a_fixed_copy_can_be_read_anywhere(here: Path) -> None:
    with pretend_cuda(), using_backend("torch"):
        main(["diagnose", *OWN, "--data", "more.py:batches", "--device", "cuda", "--fix", "--save", "fixed.pt"])
    state = torch.load("fixed.pt", weights_only=True)
    assert state
    assert not any(isinstance(value, OnCuda) for value in state.values())


def test_diagnose_needs_float64(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``auto`` on a Mac is the CPU there."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(SystemExit) as stopped:
        main(["diagnose", *OWN, "--input-shape", "2", "--device", "mps"])
    assert stopped.value.code == 2
    assert "float64, which MPS does not have" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["diagnose", *OWN, "--input-shape", "2", "--device", "auto"]) == 0
