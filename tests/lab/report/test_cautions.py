"""The cautions: what a reader must know before believing the answer."""

from __future__ import annotations

import math
from pathlib import Path

from geonorm.lab import Comparison, report
from geonorm.lab.report.cautions import cautions
from geonorm.lab.report.contents import gather
from helpers.fake_comparison import accuracies_around, fake_comparison

OFFSET = "offset(share=0.1)"
LEVELS = {
    ("bn", "clean"): 0.98, ("ln", "clean"): 0.98, ("median", "clean"): 0.98,
    ("bn", OFFSET): 0.57, ("ln", OFFSET): 0.97, ("median", OFFSET): 0.85,
}  # fmt: skip


def rows(figures: dict[str, list[float]], path: Path) -> Comparison:
    """Accuracies in per cent, a row for each norm; NaN for a run that has none."""
    seeds = len(next(iter(figures.values())))
    return fake_comparison(path, list(figures), lambda norm, _, seed: figures[norm][seed] / 100, seeds=seeds)


def texts(found: Comparison, severity: str) -> str:
    return "\n".join(one.text for one in cautions(gather(found)) if one.severity == severity)


def test_cautions(tmp_path: Path) -> None:
    norms, corruptions = ["bn", "ln", "median"], ["clean", OFFSET]
    good = fake_comparison(tmp_path / "a.sqlite", norms, accuracies_around(LEVELS), corruptions=corruptions)
    assert texts(good, "warning") == "In “clean” the differences are within noise: do not choose a norm by them."
    assert "not for the 2 columns" in texts(good, "note")
    assert "one test sample of 360 is 0.28 points" in texts(good, "note")
    few = fake_comparison(
        tmp_path / "b.sqlite", norms, accuracies_around(LEVELS), corruptions=corruptions, seeds=2, unfinished=1
    )
    assert "1 of 12 runs are not finished (median)" in texts(few, "warning")
    assert "One pair of runs for each comparison with BatchNorm: nothing can be tested" in texts(few, "warning")
    lost = {"bn": [98.0, 98.1, 98.2, 98.1, 98.0], "ln": [97.0, 98.0, 98.0, 98.1, 98.2], "pop": [math.nan] * 5}
    assert "pairs of runs" not in texts(rows(lost, tmp_path / "d.sqlite"), "warning"), "those of ln are enough"
    folded = fake_comparison(tmp_path / "c.sqlite", ["bn", "ln"], accuracies_around(LEVELS), folds=3, fold=1)
    assert "Folds share most of their training samples" in texts(folded, "note")


def test_diverged_runs_are_told_and_do_not_win(tmp_path: Path) -> None:
    def accuracy(norm: str, corruption: str, seed: int) -> float:
        return math.nan if (norm, seed) == ("ln", 3) else {"bn": 0.5, "ln": 0.9 + 0.001 * seed**2}[norm]

    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], accuracy)
    assert "1 of 10 runs diverged: their loss is not finite (ln on clean with seed 3)." in texts(found, "warning")
    assert "fewer runs, which may be the lucky ones: LayerNorm (4 runs)" in report.answer(found)
    exploded = fake_comparison(tmp_path / "s.sqlite", ["bn"], accuracies_around(LEVELS), loss=math.inf)
    assert "5 of 5 runs diverged" in texts(exploded, "warning")


def test_a_large_difference_that_could_be_chance_is_no_noise(tmp_path: Path) -> None:
    figures = {"bn": [95.0, 20.0, 96.0, 30.0, 97.0], "ln": [98.0, 97.0, 98.0, 98.0, 97.0]}
    said = texts(rows(figures, tmp_path / "r.sqlite"), "warning")
    assert said == (
        "In “clean” the differences are large but could be chance, because runs of the same norm vary as much: "
        "use more seeds."
    )
