"""``geonorm norms`` and ``geonorm info`` for scripts."""

from __future__ import annotations

import json

import pytest
import torch

import geonorm
from geonorm.cli import main


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["norms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(geonorm.norms())
    assert lines[1].split(maxsplit=1) == ["bn", geonorm.norms()["bn"]]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["norms", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == geonorm.norms()
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torch"] == torch.__version__
