"""The study on graphs: three ways to make one number of ten curves, and its verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.lab.reproduce import study, write_page
from geonorm.lab.reproduce.augnorm_graphs import (
    REGULAR,
    RENEWED,
    SMALL_BATCHES,
    best_common_epoch,
    last_epochs,
    new_statistics,
    per_fold_maxima,
)
from geonorm.lab.reproduce.results import Record, Results
from geonorm.lab.reproduce.verdicts import FAILS, HOLDS, UNDECIDED


def record(
    norm: str, fold: int | None, accuracy: list[float], *, part: str = "mutag, text", seed: int = 0, end: float = 0.5
) -> Record:
    choices = {"norm": norm, "loss": "erm", "corruption": "clean", "seed": seed, "fold": fold}
    figures = {"clean": {"accuracy": accuracy[-1]}, RENEWED: {"accuracy": end}}
    curve = {"accuracy": accuracy, "train_accuracy": accuracy}
    return Record(f"{part}{norm}{seed}{fold}", part, choices, figures, curve, 1.0)


def test_three_ways_to_make_one_number_of_the_folds() -> None:
    folds = [record("bn", 0, [0.9, 0.2, 0.6, 0.4], end=0.7), record("bn", 1, [0.1, 0.7, 0.8, 0.2], end=0.3)]
    assert per_fold_maxima(folds) == pytest.approx({(0, 0): 90, (0, 1): 80})
    assert best_common_epoch(folds) == pytest.approx({(0, 0): 60, (0, 1): 80})  # the third epoch has the highest mean
    assert last_epochs(folds) == pytest.approx({(0, 0): 40, (0, 1): 20})
    assert new_statistics(folds) == pytest.approx({(0, 0): 70, (0, 1): 30})


def test_each_split_has_its_own_best_epoch() -> None:
    splits = [record("bn", 0, [0.9, 0.2], seed=0), record("bn", 0, [0.1, 0.7], seed=1)]
    assert best_common_epoch(splits) == pytest.approx({(0, 0): 90, (1, 0): 70})


def test_verdicts() -> None:
    heights = {"bn": 0.60, "graphnorm": 0.70, "augbn(phi=1.5)": 0.70, "diffphi": 0.60}
    records = []
    for i, (norm, height) in enumerate(heights.items(), start=1):
        for fold in range(10):
            noise = 0.001 * (i * fold % 5)
            records.append(record(norm, fold, [height + noise] * 8, end=1.2 - height + noise))
    for fold in range(4):
        records.append(record("newton", fold, [0.5, 0.0 if fold else 0.5], part=SMALL_BATCHES))
        records.append(record("diffphi", fold, [0.5, 0.5], part=SMALL_BATCHES))
    for norm, height in (("(learn_alpha=false)", 1 / 3), ("", 1 / 3), ("(alpha=0.5)", 2 / 3)):
        for seed in range(3):
            records.append(record(f"graphnorm{norm}", None, [height], part=REGULAR, seed=seed))
    found = {one.claim: one for one in study("augnorm-graphs").read(Results("laptop", tuple(records))).verdicts}
    said = {claim: one.verdict for claim, one in found.items()}
    assert said["MUTAG: AugNorm at φ=1.5 is better than BatchNorm"] == HOLDS
    assert said["MUTAG: AugNorm at φ=1.5 is better than BatchNorm, statistics measured anew"] == FAILS
    assert said["MUTAG: AugNorm at φ=1.5 is comparable to GraphNorm, each fold at its best epoch"] == HOLDS
    assert UNDECIDED not in said.values()
    small = next(one for claim, one in found.items() if "batches of 8" in claim)
    assert (small.verdict, small.ours[:17]) == (HOLDS, "3 of 4 folds end ")
    assert [one for claim, one in said.items() if claim.startswith("Regular")] == [HOLDS, FAILS, HOLDS]


def test_a_page_names_parts_that_are_missing(tmp_path: Path) -> None:
    some = Results("paper", tuple(record(norm, 0, [0.5]) for norm in ("bn", "graphnorm", "augbn(phi=1.5)", "diffphi")))
    text = write_page("augnorm-graphs", some, tmp_path).read_text(encoding="utf-8")
    assert "Still to be trained: mutag, text; ptc, text; proteins, text; mutag, code;" in text
