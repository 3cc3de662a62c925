"""``geonorm report``: results that are there, told and written again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geonorm.cli import main
from geonorm.lab import Comparison, Store
from helpers.fake_comparison import fake_comparison
from helpers.hostile_names import CONTROLS, uncontrolled


def test_one_comparison_with_the_whole_page(here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *tiny, "--seeds", "2"]) == 0
    told = capsys.readouterr().out
    assert main(["report", "out/compare.sqlite"]) == 0
    assert capsys.readouterr().out == told, "it says what compare said"
    assert "<html" in (here / "out" / "compare-report" / "report.html").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_made(here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What was found is told all the same."""
    assert main(["compare", *tiny, "--out", "own.py"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("norm ")
    assert "the report cannot be written" in said.err
    assert said.err.endswith("choose another folder with --out\n")


def test_several_comparisons_have_a_folder_each(
    here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str], quick_reports: list[tuple[Path, str | None]]
) -> None:
    for rate in ("0.1", "0.2"):
        assert main(["compare", *tiny, "--lr", rate]) == 0
    capsys.readouterr()
    quick_reports.clear()
    assert main(["report", "out/compare.sqlite", "--baseline", "ln", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["runs"] for one in found] == [2, 2]
    assert quick_reports == [(Path("out/compare-report/1"), "ln"), (Path("out/compare-report/2"), "ln")]
    assert main(["report", "out/compare.sqlite"]) == 0
    assert capsys.readouterr().out.count("mlp on digits") == 2


def test_a_baseline_by_any_spelling_that_only_some_comparisons_have(
    here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str], quick_reports: list[tuple[Path, str | None]]
) -> None:
    assert main(["compare", *tiny]) == 0
    assert main(["compare", *tiny, "--norms", "bn", "gn(groups=1)", "--lr", "0.2"]) == 0
    quick_reports.clear()
    assert main(["report", "out/compare.sqlite", "--baseline", "gn( groups=1.0)"]) == 0
    assert [baseline for _, baseline in quick_reports] == [None, "gn(groups=1)"]
    with pytest.raises(SystemExit, match="2"):
        main(["report", "out/compare.sqlite", "--baseline", "bnn"])
    assert "unknown baseline 'bnn'; did you mean 'bn'? known: bn, ln, gn(groups=1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.sqlite"], "does not exist"),
        (["own.py"], "not a results file"),
        (["empty.sqlite"], "expected finished runs"),
    ],
)
def test_no_results(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    Store("empty.sqlite")
    assert main(["report", *arguments]) == 1
    assert words in capsys.readouterr().err
    assert not Path("nothing.sqlite").exists()


@pytest.mark.parametrize("name", CONTROLS)
def test_a_store_of_a_stranger_does_not_control_the_terminal(
    here: Path, capsys: pytest.CaptureFixture[str], quick_reports: list[tuple[Path, str | None]], name: str
) -> None:
    fake_comparison(
        here / "r.sqlite", ["bn", name], lambda *of: 0.9, corruptions=["clean", f"{name}1"], model=f"{name}2", seeds=2
    )
    assert main(["report", "r.sqlite"]) == 0
    assert main(["report", "r.sqlite", "--json"]) == 0
    assert main(["report", f"{name.replace(chr(47), '')}.sqlite"]) == 1
    said = capsys.readouterr()
    uncontrolled(said.out)
    uncontrolled(said.err)


def test_results_are_read_once(
    here: Path, tiny: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the answer and the page together: curves of long trainings are most of a store."""
    assert main(["compare", *tiny]) == 0
    read, curves = [], Comparison.curves
    monkeypatch.setattr(Comparison, "curves", lambda self: read.append(self) or curves(self))
    assert main(["report", "out/compare.sqlite"]) == 0
    assert len(read) == 1
