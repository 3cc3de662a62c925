"""examples/compare_own.py: runs, prints the table and the answer, and writes the page."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "compare_own.py"


def test_ones_own_model_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--epochs", "1", "--seeds", "1", "--out", str(tmp_path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[2:6]] == ["own", "gn(groups=1)", "augbn(phi=1.5)", "robustbn"]
    assert "On clean data" in said
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "compare(make_model, make_data" in page
