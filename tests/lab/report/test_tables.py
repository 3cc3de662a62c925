"""The table as Markdown, LaTeX and CSV: the numbers, the marks, and names that would break them."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from geonorm.lab import Comparison
from geonorm.lab.report import tables
from geonorm.lab.report.contents import gather
from geonorm.lab.statistics import difference, holm, summarize
from helpers.fake_comparison import accuracies_around, fake_comparison
from helpers.hostile_names import CONTROLS, FORMULAS, uncontrolled

OFFSET = "offset(share=0.1)"
LEVELS = {
    ("bn", "clean"): 0.98, ("ln", "clean"): 0.98, ("augbn(phi=1.5)", "clean"): 0.98,
    ("bn", OFFSET): 0.57, ("ln", OFFSET): 0.97, ("augbn(phi=1.5)", OFFSET): 0.85,
}  # fmt: skip


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    path = tmp_path_factory.mktemp("store") / "r.sqlite"
    return fake_comparison(
        path, ["bn", "ln", "augbn(phi=1.5)"], accuracies_around(LEVELS), corruptions=["clean", OFFSET]
    )


def rows_of(found: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tables.csv(gather(found)))))


def test_markdown(comparison: Comparison) -> None:
    lines = tables.markdown(gather(comparison)).splitlines()
    assert lines[:3] == ["| norm | `offset(share=0.1)` | `clean` |", "| --- | --- | --- |", lines[2]]
    assert lines[2].startswith("| `bn` | 5")
    broken, clean = lines[3].strip("| ").split(" | ")[1:]
    assert broken.startswith("**97.")  # the best of its column, which differs from bn
    assert broken.endswith("**\\*")
    assert "**" not in clean  # within noise: nobody is best
    assert "differs from `bn` beyond chance" in lines[-1]


def test_latex(comparison: Comparison) -> None:
    text = tables.latex(gather(comparison))
    assert text.isascii()
    assert r"norm & offset(share=0.1) & clean \\" in text
    assert r" & \textbf{97." in text
    assert text.count(r" \\") == 4
    for part in (r"\begin{tabular}{lcc}", r"\toprule", r"\bottomrule", r"$\pm$"):
        assert part in text


def test_csv(comparison: Comparison) -> None:
    rows = rows_of(comparison)
    assert len(rows) == 6
    column = list(comparison.accuracies().values())[1]
    row = next(row for row in rows if (row["norm"], row["column"]) == ("ln", OFFSET))
    found = summarize(column["ln"].values())
    gaps = [difference(column[norm], column["bn"]) for norm in ("ln", "augbn(phi=1.5)")]
    assert (row["loss"], row["corruption"], row["evaluation"]) == ("erm", OFFSET, "clean")
    assert (int(row["runs"]), int(row["lost"])) == (5, 0)
    for name, expected in (
        ("mean", found.mean), ("deviation", found.deviation), ("low", found.low), ("high", found.high),
        ("difference", gaps[0].mean), ("p", holm([gap.p for gap in gaps])[0]),
    ):  # fmt: skip
        assert float(row[name]) == pytest.approx(expected, rel=1e-3), name
    assert next(row for row in rows if row["norm"] == "bn")["difference"] == ""


def test_names_that_would_break_a_table(tmp_path: Path) -> None:
    names = ["bn", "a_b|c`d", "100%&{x}\\", 'quo"te,comma']
    found = fake_comparison(tmp_path / "r.sqlite", names, lambda norm, corruption, seed: 0.9 + 0.001 * seed, seeds=2)
    markdown = tables.markdown(gather(found)).splitlines()
    assert markdown[3].startswith(r"| `a_b\|c'd` |")
    latex = tables.latex(gather(found))
    assert r"a\_b\textbar{}c`d &" in latex
    assert r"100\%\&\{x\}\textbackslash{} &" in latex
    assert [row["norm"] for row in rows_of(found)] == names


def test_no_name_is_a_formula(tmp_path: Path) -> None:
    """A spreadsheet would compute it, and might run what it calls; numbers below zero stay numbers."""
    found = fake_comparison(
        tmp_path / "r.sqlite", ["bn", *FORMULAS], lambda norm, corruption, seed: 0.9 - 0.01 * (norm != "bn"), seeds=2,
        corruptions=["clean", "=1+1"], evaluations=["clean", "a\r=1"],
    )  # fmt: skip
    rows = list(csv.reader(io.StringIO(tables.csv(gather(found)), newline="")))
    cells = {cell for row in rows for cell in row if cell[:1] in tuple("=+-@\t\r")}
    assert all(math.isfinite(float(cell)) for cell in cells), "everything else is a number"
    assert "-1.0000" in cells
    assert {row[0] for row in rows[1:]} == {"bn", *[f"'{name}" for name in FORMULAS if name[0] != "\r"], "\\r=1"}


def test_no_name_controls_the_terminal(tmp_path: Path) -> None:
    found = fake_comparison(
        tmp_path / "r.sqlite", ["bn", *CONTROLS], lambda norm, corruption, seed: 0.9 + 0.001 * seed, seeds=2
    )
    uncontrolled(tables.text(gather(found)))


def test_lost_and_missing_runs(tmp_path: Path) -> None:
    def accuracy(norm: str, corruption: str, seed: int) -> float:
        return math.nan if norm == "ln" else 0.9 + 0.001 * seed

    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], accuracy, seeds=3, unfinished=1)
    assert "| `ln` | diverged |" in tables.markdown(gather(found))
    row = rows_of(found)[1]
    assert (row["runs"], row["lost"], row["mean"], row["p"]) == ("0", "2", "", "")


def test_the_table_for_a_terminal(comparison: Comparison) -> None:
    head, _, first, *_ = tables.text(gather(comparison)).splitlines()
    assert head.split() == ["norm", "offset", "worst", "clean", "worst", "time"]  # no memory was stored
    values = [value for column in comparison.accuracies().values() for value in [column["bn"].values()]]
    assert first.split()[0] == "bn"
    assert first.split()[4] == f"{min(values[1]):.1f}"
    assert first.split()[8] == f"{min(values[0]):.1f}"
    assert first.split()[-1] == "1.00×"
    said = tables.cost_line(gather(comparison))
    assert said == "Time and memory are those of a training step, relative to BatchNorm."


def test_labels_that_differ_in_their_arguments_are_whole(tmp_path: Path) -> None:
    kinds = ["offset(share=0.1)", "offset(share=0.2)"]
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], lambda *_: 0.9, corruptions=kinds)
    head = tables.text(gather(found)).splitlines()[0]
    assert all(kind in head for kind in kinds)
