"""The study on graphs: the ways to make one number of ten curves, and its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from studies import study, write_page
from studies.augnorm_graphs_plan import REGULAR, RENEWED, SMALL_BATCHES, STEPS, WHOLE_BATCHES
from studies.graph_metrics import (
    best_common_epoch,
    by_split,
    last_epochs,
    new_statistics,
    per_fold_maxima,
    rise,
    top,
)
from studies.results import Record, Results
from studies.verdicts import EXPLORATORY, FAILS, HOLDS, PENDING, UNDECIDED, Verdict

BETTER = "AugNorm at φ=1.5 is better than BatchNorm"
COMPARABLE = "AugNorm at φ=1.5 is comparable to GraphNorm or better"
POOR = "A learned φ is worse than φ=1.5"
AT_BEST = ", at the best epoch of the mean over the folds"
RISES = "MUTAG, training accuracy after each epoch: it rises more slowly with norms over the batch than with GraphNorm"
REACHES = "MUTAG, training accuracy after each epoch: norms over the batch do not reach 100 %"
FALLS = "A learned φ falls below its start, 1.5"
BREAKS = "MUTAG, batches of 8: learning φ without bounds makes trainings end in NaN"
SOUND = "MUTAG, batches of 128: no training with a φ learned without bounds ends in NaN"
ENOUGH = "MUTAG, φ=1.5: eight Newton steps come as close as float16 can tell, in all but 5 % of channels"


def record(
    norm: str, fold: int | None, accuracy: list[float], *, part: str = "mutag, main", seed: int = 0, **more: Any
) -> Record:
    """A training; ``more`` are further curves, and ``end`` its accuracy with new statistics."""
    choices = {"norm": norm, "loss": "erm", "corruption": "clean", "seed": seed, "fold": fold}
    figures = {"clean": {"accuracy": accuracy[-1]}, RENEWED: {"accuracy": more.pop("end", 0.5)}}
    curve = {"accuracy": accuracy, "train_accuracy": accuracy, "tested_on_training": accuracy, **more}
    return Record(f"{part}{norm}{seed}{fold}", part, choices, figures, curve, 1.0)


def splits(part: str, heights: dict[str, float], number: int = 6, **more: Any) -> list[Record]:
    """Level curves; the norms differ by the same with a little noise in every split."""
    return [
        record(norm, fold, [height + 0.001 * (i * seed % 5)] * 8, part=part, seed=seed, **more)
        for i, (norm, height) in enumerate(heights.items(), start=1)
        for seed in range(number)
        for fold in range(10)
    ]


def verdicts(records: list[Record]) -> dict[str, Verdict]:
    found = study("augnorm-graphs").read(Results("paper", tuple(records))).verdicts
    assert len({one.claim for one in found}) == len(found)
    return {one.claim: one for one in found}


def judged(records: list[Record]) -> dict[str, str]:
    return {claim: one.verdict for claim, one in verdicts(records).items() if one.verdict != EXPLORATORY}


def test_ways_to_make_one_number_of_the_folds() -> None:
    folds = [record("bn", 0, [0.9, 0.2, 0.6, 0.4], end=0.7), record("bn", 1, [0.1, 0.7, 0.8, 0.2], end=0.3)]
    assert per_fold_maxima(folds) == pytest.approx({(0, 0): 90, (0, 1): 80})
    assert best_common_epoch(folds) == pytest.approx({(0, 0): 60, (0, 1): 80})  # the third epoch has the highest mean
    assert top("train_accuracy")(folds) == best_common_epoch(folds)  # here the same curve as that of testing
    assert last_epochs(folds) == pytest.approx({(0, 0): 40, (0, 1): 20})
    assert new_statistics(folds) == pytest.approx({(0, 0): 70, (0, 1): 30})
    assert rise("train_accuracy")(folds) == pytest.approx({(0, 0): 52.5, (0, 1): 45})


def test_each_split_has_its_own_best_epoch() -> None:
    found = [record("bn", 0, [0.9, 0.2], seed=0), record("bn", 0, [0.1, 0.7], seed=1)]
    assert best_common_epoch(found) == pytest.approx({(0, 0): 90, (1, 0): 70})


def test_the_unit_is_a_split_with_all_its_folds() -> None:
    values: dict[tuple[int, int | None], float] = {(0, fold): 80.0 + fold for fold in range(10)}
    assert by_split(values | {(1, fold): 90.0 for fold in range(9)}) == {(0, None): 84.5}


def test_verdicts_on_testing() -> None:
    found = judged(splits("mutag, main", {"bn": 0.6, "graphnorm": 0.7, "augbn(phi=1.5)": 0.7, "diffphi": 0.6}))
    assert [found[claim + AT_BEST] for claim in (BETTER, COMPARABLE, POOR)] == [HOLDS, HOLDS, HOLDS]
    found = judged(splits("mutag, main", {"bn": 0.7, "graphnorm": 0.7, "augbn(phi=1.5)": 0.6, "diffphi": 0.7}))
    assert [found[claim + AT_BEST] for claim in (BETTER, COMPARABLE, POOR)] == [FAILS, FAILS, FAILS]
    level = dict.fromkeys(("bn", "graphnorm", "augbn(phi=1.5)", "diffphi"), 0.7)
    found = judged(splits("mutag, main", level))
    assert [found[claim + AT_BEST] for claim in (BETTER, COMPARABLE, POOR)] == [FAILS, HOLDS, FAILS]


def test_every_set_has_the_same_weight_whatever_its_splits() -> None:
    """AugNorm is 4 points above on MUTAG, with twelve splits, and 6 below on PTC, with six."""
    records = splits("mutag, main", {"bn": 0.60, "augbn(phi=1.5)": 0.64}, 12)
    records += splits("ptc, main", {"bn": 0.66, "augbn(phi=1.5)": 0.60}, 6)
    found = verdicts(records)
    assert found[BETTER + AT_BEST].verdict == FAILS
    assert "difference -1.0" in found[BETTER + AT_BEST].why
    assert "18 splits" in found[BETTER + AT_BEST].why
    alone = {name: found[f"{BETTER}, {name} alone: best epoch of the mean"] for name in ("MUTAG", "PTC")}
    assert {one.verdict for one in alone.values()} == {EXPLORATORY}
    assert "difference +4" in alone["MUTAG"].why


def test_a_set_with_one_split_waits_for_its_second() -> None:
    records = splits("mutag, main", {"bn": 0.6, "augbn(phi=1.5)": 0.7})
    once = splits("proteins, main", {"bn": 0.9, "augbn(phi=1.5)": 0.6}, 1)
    found = verdicts([*records, *once])[BETTER + AT_BEST]
    assert found.verdict == HOLDS
    assert "PROTEINS: 60.00 against 90.00 (splits: 1, not in the test)" in found.ours
    assert judged(once)[BETTER + AT_BEST] == PENDING


def test_verdicts_need_both_norms_and_whole_splits() -> None:
    assert all("better" not in claim for claim in verdicts(splits("ptc, main", {"bn": 0.6})))
    found = splits("ptc, main", {"bn": 0.6, "augbn(phi=1.5)": 0.7})
    assert "5 splits" in verdicts(found[:-3])[BETTER + AT_BEST].why, "the last split of AugNorm lacks three folds"


def test_the_protocols_before_are_shown_without_verdicts() -> None:
    heights = {"bn": 0.6, "graphnorm": 0.7, "augbn(phi=1.5)": 0.7, "diffphi": 0.6}
    found = verdicts([*splits("mutag, text", heights, 3), *splits("mutag, code", heights, 3)])
    assert {one.verdict for one in found.values()} == {EXPLORATORY}
    assert f"{BETTER}, GraphNorm's code: best epoch of the mean" in found


def test_verdicts_on_training() -> None:
    slow = {"bn": 0.80, "graphnorm": 0.90, "augbn(phi=1.5)": 0.80, "diffphi": 0.80}
    found = judged(splits("mutag, main", slow))
    assert (found[RISES], found[REACHES]) == (HOLDS, HOLDS)
    level = dict.fromkeys(slow, 0.9)
    assert judged(splits("mutag, main", level))[RISES] == FAILS
    full = [
        record._replace(curve={**record.curve, "tested_on_training": [0.5, 1.0]})
        for record in splits("mutag, main", slow)
    ]
    assert judged(full)[REACHES] == FAILS
    during = REACHES.replace("after each epoch", "during the epoch")
    assert verdicts(full)[during].verdict == EXPLORATORY


@pytest.mark.parametrize(("phi", "verdict"), [(1.3, HOLDS), (1.499, FAILS), (1.7, FAILS)])
def test_verdict_on_where_a_learned_phi_goes(phi: float, verdict: str) -> None:
    records = [
        record("diffphi", fold, [0.5], seed=seed, phi=[{"norms.0": phi + 0.002 * seed, "norms.1": phi}])
        for seed in range(6)
        for fold in range(10)
    ]
    found = verdicts(records)[FALLS]
    assert (found.verdict, found.is_own) == (verdict, True)


def small(norm: str, ends: str, lows: float = 0.8) -> list[Record]:
    """Trainings with batches of 8, one for each letter: x ends in NaN."""
    reached = [{"lowest": lows, "mean": 1.5, "highest": 2.0}]
    return [
        record(norm, fold, [0.5, 0.0 if end == "x" else 0.5], part=SMALL_BATCHES, exponents=[*reached, None])
        for fold, end in enumerate(ends)
    ]


@pytest.mark.parametrize(
    ("learned", "fixed", "verdict"),
    [
        ("xxxxxxxxxx", "oooooooooo", HOLDS),
        ("xxxxxxxxxo", "oooooooooo", HOLDS),
        ("xxxxxxxxxx", "xxxxxxxxxx", FAILS),  # the steps do it, whatever φ is
        ("oooooooooo", "oooooooooo", FAILS),
        ("xooooooooo", "oooooooooo", UNDECIDED),
    ],
)
def test_nan_is_blamed_on_phi_only_if_its_control_has_none(learned: str, fixed: str, verdict: str) -> None:
    found = verdicts([*small("newton_closed", learned), *small("newton_closed_fixed", fixed)])[BREAKS]
    assert found.verdict == verdict
    assert "φ was at most 1 in 10 of 10, lowest 0.80" in found.ours


def test_verdicts_on_large_batches_and_eight_steps() -> None:
    def whole(broken: int) -> list[Record]:
        return [record("newton_closed", i, [0.0 if i < broken else 0.5], part=WHOLE_BATCHES) for i in range(10)]

    assert judged(whole(0))[SOUND] == HOLDS
    assert judged(whole(6))[SOUND] == FAILS

    def steps(missed: float) -> list[Record]:
        curves = [[{"missed": missed + 0.001 * seed, "median": 0.0, "largest": 1.0}] for seed in range(5)]
        return [
            record("augbn(phi=1.5)", None, [0.5], part=STEPS, seed=seed, eight_steps=curve)
            for seed, curve in enumerate(curves)
        ]

    assert judged(steps(0.01))[ENOUGH] == HOLDS
    assert judged(steps(0.3))[ENOUGH] == FAILS


def test_verdicts_on_regular_graphs() -> None:
    records = []
    for norm, heights in (
        ("(learn_alpha=false)", (1, 1, 1, 1, 1)),
        ("", (1, 1, 1, 1, 1)),
        ("(alpha=0.5)", (2, 1, 2, 1, 1)),
    ):
        for seed, height in enumerate(heights):
            records.append(record(f"graphnorm{norm}", None, [height / 3], part=REGULAR, seed=seed))
    regular = list(verdicts(records).values())
    assert [one.verdict for one in regular] == [HOLDS, FAILS, UNDECIDED]
    assert [one.is_own for one in regular] == [False, True, True]
    assert regular[2].ours.endswith("2 of 5 seeds over 40 %")


def test_a_page_names_parts_that_are_missing(tmp_path: Path) -> None:
    norms = ("bn", "graphnorm", "augbn(phi=1.5)", "diffphi")
    some = Results("paper", tuple(record(norm, 0, [0.5], part="mutag, main") for norm in norms))
    text = write_page("augnorm-graphs", some, tmp_path).read_text(encoding="utf-8")
    assert "mutag, main" in text
    assert "ptc, main; proteins, main;" in text
    assert "MUTAG, ten folds" in text
