"""The checks for a GPU themselves, on a pretended one: they pass, they find a planted error, and they end in words."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from geonorm.nn import AugBatchNorm1d
from helpers.pretend_cuda import pretend_cuda
from helpers.slow_cases import slow_except

from . import __main__ as command
from . import checks

FEW = ["AugBatchNorm1d-guard=2.0-phi=2.0", "AugLayerNorm-phi=1.0", "PopNorm2d-kappa=1.0-spread=max_abs"]

DEFAULTS = [name for name in checks.OPTION_CASE_NAMES if name.endswith("-default")]


@pytest.mark.parametrize("name", slow_except(FEW, [*FEW, *DEFAULTS]))
def test_layers(name: str) -> None:
    with pretend_cuda():
        found = list(checks.layer_checks("cuda", "torch", [name]))
    assert len(found) == len(checks.DTYPES)
    assert [one for one in found if not one.is_good] == []


@pytest.mark.slow
def test_data() -> None:
    with pretend_cuda():
        assert [one for one in checks.data_checks("cuda", "torch") if not one.is_good] == []


@pytest.mark.slow
def test_the_lab() -> None:
    with pretend_cuda():
        assert [one for one in checks.lab_checks("cuda") if not one.is_good] == []


def test_screen_and_diagnose() -> None:
    with pretend_cuda():
        found = list(checks.model_checks("cuda"))
    assert len(found) == 2
    assert all(one.is_good for one in found)


@pytest.mark.parametrize("place", ["output", "running_var", "gradient"])
def test_a_planted_error_is_found(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A per mille more, on the device alone."""
    forward = AugBatchNorm1d.forward

    def wrong(layer: Any, x: torch.Tensor, *more: Any) -> torch.Tensor:
        y = forward(layer, x, *more)
        if not x.is_cuda:
            return y
        if place == "running_var" and layer.training:
            layer.running_var.mul_(1.001)
        if place == "gradient" and y.requires_grad:
            y.register_hook(lambda grad: grad * 1.001)
        return y * 1.001 if place == "output" else y

    monkeypatch.setattr(AugBatchNorm1d, "forward", wrong)
    with pretend_cuda():
        found = {one.name.split(", ")[1].split(":")[0]: one for one in checks.layer_checks("cuda", "torch", FEW[:1])}
    assert not found["float64"].is_good
    assert not found["float32"].is_good


def test_what_is_not_finite_must_be_so_in_the_same_places() -> None:
    some, none = torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])
    assert checks.error_of(some, some) == 0
    assert checks.error_of(none, some) == checks.error_of(some, none) == math.inf
    assert checks.error_of(some[1:], some[1:]) == 0
    assert not checks.Outcome("", math.nan, 1.0).is_good


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make test-gpu` starts it: a word, exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("tests.gpu", run_name="__main__")
    assert stopped.value.code == 2
    assert "finds no GPU here. It needs CUDA, ROCm or MPS" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user sends: the installation, the worst of each part, failures, and what could not be checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "backends", lambda device: {"torch": "", "triton": "it is not installed"})
    good, bad = checks.Outcome("one layer, float32: output", 1e-7, 1e-5), checks.Outcome("another", 0.1, 0.01)

    def broken(device: str, *more: Any) -> Any:
        yield good
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(checks, "layer_checks", lambda device, backend: [good, bad])
    monkeypatch.setattr(checks, "data_checks", broken)
    monkeypatch.setattr(checks, "lab_checks", lambda device: [good])
    monkeypatch.setattr(checks, "model_checks", lambda device: [])
    with pretend_cuda():
        assert command.main() == 1
    written = command.PAGE.read_text()
    assert "device: cuda: a pretended GPU" in written
    assert f"torch: {torch.__version__}" in written
    assert "layers, torch: 2 checks, 1 failed" in written
    assert "FAILED another: 0.1, allowed 0.01" in written
    assert "ok     one layer, float32: output: 1e-07, allowed 1e-05" in written
    assert "ended by RuntimeError: no kernel image" in written
    assert "layers, triton: not checked, it is not installed" in written
    assert written.endswith("2 checks failed\n")
    assert "2 checks failed" in capsys.readouterr().err
