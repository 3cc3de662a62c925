"""The answer: true for every kind of outcome, in words as large as the effect, and never a winner from noise."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from geonorm.lab import Comparison, report
from geonorm.lab.report.contents import gather
from geonorm.lab.report.labels import circumstances
from geonorm.lab.report.verdict_text import paragraphs
from geonorm.lab.results import Column
from helpers.fake_comparison import accuracies_around, fake_comparison

OFFSET = "offset(share=0.1)"
LEVELS = {
    ("bn", "clean"): 0.98, ("ln", "clean"): 0.98, ("median", "clean"): 0.98,
    ("bn", OFFSET): 0.57, ("ln", OFFSET): 0.97, ("median", OFFSET): 0.85,
}  # fmt: skip


def rows(figures: dict[str, list[float]], path: Path, **more: Any) -> Comparison:
    """Accuracies in per cent, a row for each norm; NaN for a run that has none."""
    seeds = len(next(iter(figures.values())))
    return fake_comparison(path, list(figures), lambda norm, _, seed: figures[norm][seed] / 100, seeds=seeds, **more)


def told(figures: dict[str, list[float]], folder: Path) -> str:
    """The text of the only column."""
    return paragraphs(gather(rows(figures, folder / "r.sqlite")))[0].removeprefix("On clean data, ")


def test_words_follow_the_size_of_the_effect(tmp_path: Path) -> None:
    figures = {
        "bn": [10.0, 30.2, 12.1, 15.0, 11.0],
        "diffphi": [40.0, 80.0, 55.5, 90.0, 60.0],
        "robustbn": [80.6, 93.0, 92.0, 91.5, 94.0],
        "guardbn": [98.0, 98.3, 97.8, 98.1, 97.9],
        "ln": [97.7, 98.2, 97.9, 97.8, 98.0],
    }
    assert told(figures, tmp_path) == (
        "BatchNorm failed in all five runs (10–30 %). diffphi failed in one of five runs (40–90 %). "
        "robustbn stayed above 80 %. guardbn and LayerNorm reached 98 %. "
        "guardbn is 82.4 points above BatchNorm (95 % interval 72.2 to 92.5, p < 0.001). "
        "Its lead over LayerNorm (0.1 points) is within noise. "
        "Its lead over robustbn (7.8 points) and diffphi (32.9 points) could be chance."
    )


def test_columns_with_broken_samples_come_first_and_the_seeds_last(tmp_path: Path) -> None:
    found = fake_comparison(
        tmp_path / "r.sqlite", ["bn", "ln", "median"], accuracies_around(LEVELS), corruptions=["clean", OFFSET]
    )
    broken, clean, sure = paragraphs(gather(found))
    assert broken.startswith("With 10 % of the training samples offset, BatchNorm stayed above 57 % and ")
    assert "LayerNorm is 39.9 points above BatchNorm" in broken
    assert clean == (
        "On clean data, BatchNorm, LayerNorm and median reached 97.9–98.0 %. "
        "No difference to BatchNorm is larger than 0.1 points, and all are within noise."
    )
    assert sure.startswith("How sure: five seeds; the 95 % intervals of the differences to BatchNorm reach up to ±0.")
    assert report.answer(found) == f"{broken} {clean} {sure}"
    against_ln = paragraphs(gather(found, "ln"))[0]
    assert against_ln.endswith("Worse than LayerNorm beyond chance: BatchNorm by 39.9 and median by 12.0 points.")


def test_forty_points_are_never_called_noise(tmp_path: Path) -> None:
    """Too few, too varied runs: that is said of the runs, and the size of the difference is not hidden."""
    figures = {"bn": [95.0, 20.0, 96.0, 30.0, 97.0], "ln": [98.0, 97.0, 98.0, 98.0, 97.0]}
    text = told(figures, tmp_path)
    assert text == (
        "BatchNorm failed in two of five runs (20–97 %). LayerNorm reached 98 %. "
        "The 30.0 points of LayerNorm over BatchNorm could be chance (95 % interval −18.4 to 78.4); "
        "more seeds would tell."
    )


def noise(seed: int) -> float:
    return random.Random(seed).gauss(0, 1)


@pytest.mark.parametrize("gap", [0.5, 5.0, 40.0])
@pytest.mark.parametrize("spread", [0.2, 5.0, 25.0])
def test_noise_is_said_of_small_differences_only(gap: float, spread: float, tmp_path: Path) -> None:
    """Over sizes and spreads: within noise means at most a point; above means that the test says so."""
    norms = ["bn", "ln", "gn", "median"]
    figures = {
        norm: [min(60 - gap * (norm == "bn") + spread * noise(7 * i + seed), 100.0) for seed in range(6)]
        for i, norm in enumerate(norms)
    }
    found = gather(rows(figures, tmp_path / "r.sqlite"))
    (verdict,) = found.verdicts.values()
    text = paragraphs(found)[0]
    if "all are within noise" in text:
        assert verdict.is_noise
        assert max(abs(difference.mean) for difference in verdict.to_baseline.values()) <= 1
    if "above BatchNorm (95 %" in text:
        assert verdict.beats_baseline
    if "could be chance (95" in text:
        assert verdict.best is not None
        assert not verdict.to_baseline[verdict.best].is_real
    for norm in norms:
        assert (max(figures[norm]) < 30) <= ("failed in" in text)


def test_higher_but_within_noise_of_the_baseline(tmp_path: Path) -> None:
    figures = {"bn": [95, 97, 93, 96, 94], "ln": [95.2, 95.2, 95.3, 95.1, 95.2], "gn": [80.0] * 5}
    assert told(figures, tmp_path) == (
        "GroupNorm stayed above 79 %. BatchNorm and LayerNorm reached 95 %. "
        "Worse than BatchNorm beyond chance: GroupNorm by 15.0 points."
    )


def test_a_best_norm_that_is_behind_the_runs_that_are_left_of_the_baseline(tmp_path: Path) -> None:
    figures = {"bn": [98.0, 98.1, 98.2, 98.1, math.nan], "ln": [95.0, 95.2, 95.1, 95.3, 95.0]}
    assert told(figures, tmp_path) == (
        "BatchNorm diverged in 1 of 5 runs. LayerNorm stayed above 94.9 %. BatchNorm reached 98.1 %. "
        "Higher, but over fewer runs, which may be the lucky ones: BatchNorm (4 runs). "
        "Worse than BatchNorm beyond chance: LayerNorm by 2.9 points."
    )


def test_one_lucky_run_is_not_the_best(tmp_path: Path) -> None:
    figures = {"bn": [90.0, 91.0, 90.5, 90.2, 90.7], "ln": [95.0, 95.2, 95.1, 95.3, 95.0], "gn": [99.0] * 5}
    found = rows(figures, tmp_path / "r.sqlite")
    kept = Comparison(tuple(run for run in found.runs if run["norm"] != "gn" or run["seed"] == 0), found.store)
    text = report.answer(kept)
    assert "LayerNorm is 4.6 points above BatchNorm" in text
    assert "fewer runs, which may be the lucky ones: GroupNorm (1 run)" in text
    assert "GroupNorm is" not in text


def test_what_cannot_be_tested_is_not_called_noise(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert told({"bn": [50.0] * 5, "ln": [100.0] * 5}, tmp_path / "a") == (
        "BatchNorm stayed above 49 %. LayerNorm reached 100 %. "
        "Every run differs from that of BatchNorm by the same amount, which no test can judge."
    )
    assert told({"bn": [50.0] * 5, "ln": [50.0] * 5}, tmp_path / "b") == (
        "BatchNorm and LayerNorm reached 50.0 %. "
        "No difference to BatchNorm is larger than 0.0 points, and all are within noise."
    )
    lonely = rows({"bn": [50.0] * 5, "ln": [90.0, 91.0, 92.0, 91.0, 90.0], "gn": [60.0] * 5}, tmp_path / "c.sqlite")
    kept = Comparison(tuple(run for run in lonely.runs if run["norm"] != "bn" or run["seed"] == 0), lonely.store)
    assert report.answer(kept).endswith("Too few runs are done to compare them with BatchNorm.")


def test_a_norm_of_which_every_run_is_lost(tmp_path: Path) -> None:
    figures = {"bn": [98.0, 98.1, 98.2, 98.1, 98.0], "pop": [math.nan] * 5}
    one = rows(figures, tmp_path / "a.sqlite")
    assert "diverged" in one.table()
    assert report.answer(one).startswith("On clean data, pop diverged in 5 of 5 runs. BatchNorm reached 98.1 %.")
    none = rows({norm: [math.nan] * 5 for norm in figures}, tmp_path / "b.sqlite")
    assert report.answer(none) == "On clean data, BatchNorm diverged in 5 of 5 runs and pop diverged in 5 of 5 runs."


def test_columns_that_are_not_told_are_counted(tmp_path: Path) -> None:
    """Only one of four has a winner: the answer must not read as if all had."""
    corruptions = ["clean", OFFSET, "gain", "labels"]
    levels = {**LEVELS, **{(norm, kind): 0.9 for norm in ("bn", "ln") for kind in corruptions[2:]}}
    found = fake_comparison(tmp_path / "r.sqlite", ["bn", "ln"], accuracies_around(levels), corruptions=corruptions)
    assert paragraphs(gather(found))[2] == (
        "Of the two other columns, none has a norm that beats BatchNorm beyond chance."
    )


@pytest.mark.parametrize(
    ("norms", "seeds", "unfinished", "expected"),
    [
        (["bn", "ln"], 5, 10, "No run is finished yet."),
        (["bn"], 5, 0, "On clean data, BatchNorm reached 98.0 %. There is nothing to compare it with yet."),
        (["bn", "ln"], 1, 0, "With one run of each norm, every difference could be chance."),
        (["bn", "ln"], 2, 0, "How sure: two seeds; the 95 % intervals"),
        (["bn", "ln"], 5, 0, "and all are within noise"),
    ],
)
def test_less_than_a_comparison(norms: list[str], seeds: int, unfinished: int, expected: str, tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", norms, accuracies_around(LEVELS), seeds=seeds, unfinished=unfinished)
    assert expected in report.answer(found)


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
