"""The answer and the cautions: right for every kind of outcome, and never a winner from noise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from geonorm.lab import Comparison, report
from geonorm.lab.report.contents import gather
from geonorm.lab.report.labels import circumstances
from geonorm.lab.report.verdict_text import cautions
from geonorm.lab.results import Column
from helpers.fake_comparison import accuracies_around, fake_comparison

OFFSET = "offset(share=0.1)"
LEVELS = {
    ("bn", "clean"): 0.98, ("ln", "clean"): 0.98, ("median", "clean"): 0.98,
    ("bn", OFFSET): 0.57, ("ln", OFFSET): 0.97, ("median", OFFSET): 0.85,
}  # fmt: skip


def test_a_clear_difference(tmp_path: Path) -> None:
    found = fake_comparison(
        tmp_path / "r.sqlite", ["bn", "ln", "median"], accuracies_around(LEVELS), corruptions=["clean", OFFSET]
    )
    text = report.answer(found)
    assert text == (
        "On clean data, the other two norms are within noise of BatchNorm (97.9–98.0 %). With 10 % of the "
        "training samples offset, LayerNorm is best: 97.1 %, 39.9 points over BatchNorm (p < 0.001)."
    )
    assert "the model's own norm" not in text
    against_ln = report.answer(found, baseline="ln")
    assert against_ln.endswith("offset, LayerNorm is best: 97.1 %, better than all others beyond chance.")


def test_the_best_is_named_with_those_level_with_it(tmp_path: Path) -> None:
    levels = {**LEVELS, ("median", "clean"): 0.98, ("bn", "clean"): 0.5}
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln", "median"], accuracies_around(levels))
    assert "is within noise of it." in report.answer(found)


def test_higher_but_within_noise_of_the_baseline(tmp_path: Path) -> None:
    def accuracy(norm: str, corruption: str, seed: int) -> float:
        return {"bn": [0.95, 0.97, 0.93, 0.96, 0.94], "ln": [0.96, 0.96, 0.961, 0.959, 0.96]}.get(norm, [0.5] * 5)[seed]

    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln", "gn"], accuracy)
    assert report.answer(found) == (
        "On clean data, none is better than BatchNorm (95.0 %) beyond chance; the highest, LayerNorm, reaches 96.0 %; "
        "clearly behind: GroupNorm."
    )


def rows(figures: dict[str, list[float]], path: Path, **more: Any) -> Comparison:
    """Accuracies in per cent, a row for each norm; NaN for a run that has none."""
    seeds = len(next(iter(figures.values())))
    return fake_comparison(path, list(figures), lambda norm, _, seed: figures[norm][seed] / 100, seeds=seeds, **more)


def test_far_apart_and_still_not_told_apart(tmp_path: Path) -> None:
    figures = {"bn": [95.0, 60.0, 96.0, 70.0, 97.0], "ln": [98.0, 97.0, 98.0, 98.0, 97.0], "gn": [95, 96, 60, 97, 95]}
    assert report.answer(rows(figures, tmp_path / "r.sqlite")) == (
        "On clean data, accuracies go from 83.6 to 97.6 % (LayerNorm), but runs of the same norm vary too much to "
        "distinguish them from BatchNorm (BatchNorm ± 17.4); more seeds may help."
    )


def test_a_best_norm_that_is_behind_the_runs_that_are_left_of_the_baseline(tmp_path: Path) -> None:
    found = rows(
        {"bn": [98.0, 98.1, 98.2, 98.1, math.nan], "ln": [95.0, 95.2, 95.1, 95.3, 95.0]}, tmp_path / "r.sqlite"
    )
    assert report.answer(found) == (
        "On clean data, LayerNorm is the highest of the norms that have all their runs: 95.1 %; higher, but over fewer "
        "runs: BatchNorm (98.1 % over 4)."
    )


def test_one_lucky_run_is_not_the_best(tmp_path: Path) -> None:
    figures = {"bn": [90.0, 91.0, 90.5, 90.2, 90.7], "ln": [95.0, 95.2, 95.1, 95.3, 95.0], "gn": [99.0] * 5}
    found = rows(figures, tmp_path / "r.sqlite")
    kept = Comparison(tuple(run for run in found.runs if run["norm"] != "gn" or run["seed"] == 0), found.store)
    text = report.answer(kept)
    assert "LayerNorm is best: 95.1 %" in text
    assert "higher, but over fewer runs: GroupNorm (99.0 % over 1)" in text


def test_what_cannot_be_tested_is_not_called_noise(tmp_path: Path) -> None:
    always = report.answer(rows({"bn": [50.0] * 5, "ln": [100.0] * 5}, tmp_path / "a.sqlite"))
    assert always == (
        "On clean data, accuracies go from 50.0 to 100.0 % (LayerNorm), but every run differs from that of BatchNorm "
        "by the same amount, which no test can judge."
    )
    equal = report.answer(rows({"bn": [50.0] * 5, "ln": [50.0] * 5}, tmp_path / "b.sqlite"))
    assert equal == "On clean data, both norms are within noise (50.0 %)."
    lonely = rows({"bn": [50.0] * 5, "ln": [90.0, 91.0, 92.0, 91.0, 90.0], "gn": [60.0] * 5}, tmp_path / "c.sqlite")
    kept = Comparison(tuple(run for run in lonely.runs if run["norm"] != "bn" or run["seed"] == 0), lonely.store)
    assert report.answer(kept).endswith("too few runs are done to compare them with BatchNorm.")


def test_a_norm_of_which_every_run_is_lost(tmp_path: Path) -> None:
    figures = {"bn": [98.0, 98.1, 98.2, 98.1, 98.0], "pop": [math.nan] * 5}
    assert "diverged" in rows(figures, tmp_path / "a.sqlite").table()
    found = rows({norm: [math.nan] * 5 for norm in figures}, tmp_path / "b.sqlite")
    assert report.answer(found) == "On clean data, every run that is finished has diverged."


def test_columns_that_are_not_told_are_counted(tmp_path: Path) -> None:
    """Only one of four has a winner: the answer must not read as if all had."""
    corruptions = ["clean", OFFSET, "gain", "labels"]
    levels = {**LEVELS, **{(norm, kind): 0.9 for norm in ("bn", "ln") for kind in corruptions[2:]}}
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], accuracies_around(levels), corruptions=corruptions)
    assert report.answer(found).endswith(
        "Of the two other columns, none has a norm that beats BatchNorm beyond chance."
    )


@pytest.mark.parametrize(
    ("norms", "seeds", "unfinished", "expected"),
    [
        (["bn", "ln"], 5, 10, "No run is finished yet."),
        (["bn"], 5, 0, "On clean data, BatchNorm reaches 98.0 %, with nothing to compare it with yet."),
        (["bn", "ln"], 1, 0, "one seed cannot distinguish an effect from chance."),
        (["bn", "ln"], 2, 0, "two runs of each are too few to distinguish an effect from chance."),
        (["bn", "ln"], 5, 0, "On clean data, both norms are within noise"),
    ],
)
def test_less_than_a_comparison(norms: list[str], seeds: int, unfinished: int, expected: str, tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", norms, accuracies_around(LEVELS), seeds=seeds, unfinished=unfinished)
    assert expected in report.answer(found)


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
    assert "; higher, but over fewer runs: LayerNorm (90.5 % over 4)" in report.answer(found)
    exploded = fake_comparison(tmp_path / "s.sqlite", ["bn"], accuracies_around(LEVELS), loss=math.inf)
    assert "5 of 5 runs diverged" in texts(exploded, "warning")


@pytest.mark.parametrize(
    ("column", "say_loss", "expected"),
    [
        (("erm", "clean", "clean"), False, "On clean data"),
        (("cvar(alpha=0.3)", "gain", "clean"), True,
         "With 10 % of the training samples multiplied by a wrong gain, with the loss cvar(alpha=0.3)"),
        (("erm", "spurious(share=0.05)", "bim(eps=0.1)"), False,
         "With an attribute that misleads in 5 % of the training samples, attacked by bim(eps=0.1)"),
        (("erm", "offset(share=0.2, strength=3)", "blur(severity=2)"), False,
         "With 20 % of the training samples offset by 3 standard deviations, tested with blur(severity=2)"),
        (("erm", "gain(strength=5)", "clean"), False,
         "With 10 % of the training samples multiplied by a wrong gain (strength 5)"),
        (("erm", "<b>", "clean"), False, "Trained on <b>"),
    ],
)  # fmt: skip
def test_circumstances(column: tuple[str, str, str], say_loss: bool, expected: str) -> None:
    assert circumstances(Column(*column), say_loss) == expected


def test_the_baseline_must_be_there(tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", ["ln", "own"], lambda *choices: 0.9, seeds=1)
    assert gather(found).baseline == "own"
    with pytest.raises(ValueError, match=r"one of ln, own \(got 'bn'\)"):
        report.answer(found, baseline="bn")
