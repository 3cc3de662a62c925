"""Results on disk: nothing is lost on the way, nothing is run twice."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import studies as room
from geonorm.lab import Store
from geonorm.lab.statistics import difference
from studies import reproduce, results, study, write_page
from studies.page import Chart, Page, Table, mean_line, spread
from studies.recipe import StudyRecipe
from studies.results import Results, accuracy
from studies.study import Study
from studies.verdicts import (
    EXPLORATORY,
    FAILS,
    HOLDS,
    OWN,
    PENDING,
    UNDECIDED,
    Answer,
    Gap,
    Verdict,
    above,
    below,
    better,
    corrected,
    explored,
    level,
    no_worse,
    pooled,
    positive,
)

RECIPE = StudyRecipe(norms=("bn", "none"), seeds=(0, 1), epochs=2, batch_size=256)


def read(found: Results) -> Page:
    lines = [mean_line(norm, [r.curve["loss"] for r in found.of("digits", norm=norm)]) for norm in ("bn", "none")]
    rows = [[norm, spread(found.values(accuracy(), "digits", norm=norm))] for norm in ("bn", "none")]
    return Page(
        "Not at all.",
        [Verdict("a | claim", "1", "2", HOLDS, "so")],
        [
            Table("Accuracy", ["norm", "ours"], rows),
            Chart("loss", "Loss", "epoch", "loss", {"digits": lines}, log_x=True),
            Chart("nothing", "Nothing", "epoch", "loss", {}),
        ],
    )


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Study("small", "A small one", "no paper", {"laptop": 1}, lambda preset: {"digits": RECIPE}, read)
    monkeypatch.setattr(room, "study", lambda name: small)


def test_of_some_figures_only_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = StudyRecipe(norms=("bn", "diffphi"), seeds=(0,), epochs=2, batch_size=256)
    ends = Study("small", "", "", {}, lambda preset: {"digits": recipe}, read, curves=("loss",), ends=("phi",))
    monkeypatch.setattr(room, "study", lambda name: ends)
    plain, learned = reproduce("small", folder=tmp_path).records
    assert list(plain.curve) == ["loss"]
    assert [len(values) for values in learned.curve.values()] == [2, 1]
    assert all(1 < phi < 3 for phi in learned.curve["phi"][0].values())


@pytest.mark.usefixtures("known")
def test_from_runs_to_the_page(tmp_path: Path) -> None:
    found = reproduce("small", folder=tmp_path)
    assert [(one.choices["norm"], one.choices["seed"]) for one in found.records] == [
        ("bn", 0), ("none", 0), ("bn", 1), ("none", 1)
    ]  # fmt: skip
    assert results.read(tmp_path / "small" / "laptop.jsonl") == found
    assert all(len(one.curve["loss"]) == 2 for one in found.records)

    (tmp_path / "small.sqlite").unlink()  # as on another machine: the file alone says what is done
    assert reproduce("small", folder=tmp_path) == found
    assert not Store(tmp_path / "small.sqlite").finished()
    more = reproduce("small", folder=tmp_path, seeds=3, progress=True)
    assert more.records[:4] == found.records
    assert len(Store(tmp_path / "small.sqlite").finished()) == 2
    (tmp_path / "small.sqlite").unlink()
    assert reproduce("small", folder=tmp_path, seeds=1) == more, "the other seeds are kept"

    assert "--preset laptop --seeds 3`" in write_page("small", more, tmp_path / "more").read_text()

    pages = [write_page("small", found, tmp_path / place) for place in ("a", "b")]
    assert "--preset laptop`" in pages[0].read_text()
    assert pages[0].read_bytes() == pages[1].read_bytes()
    charts = [page.with_name("small-loss.svg").read_bytes() for page in pages]
    assert charts[0] == charts[1]
    assert b"<dc:date>" not in charts[0]
    assert "Nothing" not in pages[0].read_text()
    assert "a &#124; claim" in pages[0].read_text()


def test_seeds_are_counted_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = StudyRecipe(norms=("none",), seeds=(1,), epochs=1, batch_size=256)
    small = Study("small", "", "", {}, lambda preset: {"digits": recipe}, read)
    monkeypatch.setattr(room, "study", lambda name: small)
    assert [one.choices["seed"] for one in reproduce("small", folder=tmp_path, seeds=2).records] == [1, 2]


@pytest.mark.usefixtures("known")
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "small" / "laptop.jsonl"
    path.parent.mkdir()
    for bad in (b'{"key": "ab', b'{"word": 1}', b"[]", b"\xff", b""):
        path.write_bytes(bad + b"\n")
        with pytest.raises(ValueError, match=r"in line 1 of .*laptop\.jsonl .*delete this line"):
            reproduce("small", folder=tmp_path)
        assert path.read_bytes() == bad + b"\n"


def test_every_damage_to_a_line_is_told_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "laptop.jsonl"
    choices = {"norm": "bn", "loss": "erm", "corruption": "clean", "seed": 0, "fold": None}
    records = tuple(
        results.Record(f"{number:016x}", "φ", choices, {"clean": {"accuracy": 0.5}}, {"loss": [math.nan]}, 0.25)
        for number in range(3)
    )
    results.write(Results("laptop", records), path)
    good = path.read_bytes()
    assert repr(results.read(path).records) == repr(records)
    lines = good.splitlines(keepends=True)
    for number, damaged in (
        (3, good[:-20]),
        (2, lines[0] + lines[1].replace(b"0.5", b"0.7") + lines[2]),
        (2, lines[0] + lines[1].replace(b"0.25", b"0.\n25") + lines[2]),
        (1, lines[0].replace(b"bn", b"b\xee") + lines[1]),
        (3, lines[0] + lines[1] + lines[0]),
        (1, lines[0].rstrip() + lines[1]),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"in line {number} of .*laptop\.jsonl"):
            results.read(path)
    path.write_bytes(b"".join(line.partition(b',"crc32"')[0] + b"}\n" for line in lines))
    assert repr(results.read(path).records) == repr(records), "as lines were written before"


def test_a_misspelt_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'augnorm-graphs'"):
        study("augnorm-graph")


def test_verdicts() -> None:
    one = {(seed, None): 90.0 + seed % 3 for seed in range(9)}
    higher = {pair: value + 5 + 0.1 * (pair[0] % 2) for pair, value in one.items()}
    unclear = {pair: value + (-1) ** pair[0] for pair, value in one.items()}
    assert better(higher, one)[0] == HOLDS
    assert better(one, higher)[0] == FAILS
    assert better(unclear, one)[0] == UNDECIDED
    assert level(unclear, one, margin=2)[0] == HOLDS
    assert level(higher, one, margin=2)[0] == FAILS
    assert level(unclear, one, margin=0.5)[0] == UNDECIDED
    assert "+5.04" in better(higher, one).why
    assert better({pair: value + 1 for pair, value in one.items()}, one)[:2] == (
        HOLDS,
        "difference +1.00 in all 9 pairs",
    )
    assert [above(one, bound)[0] for bound in (80, 91, 99)] == [HOLDS, UNDECIDED, FAILS]
    assert [below(one, bound)[0] for bound in (80, 91, 99)] == [FAILS, UNDECIDED, HOLDS]
    assert above(dict.fromkeys(one, 1.0), 0.8)[:2] == (HOLDS, "difference from the bound +0.20 in all 9 runs")
    assert "9 runs" in above(one, 80).why
    few = {(0, None): 1.0}
    assert better(few, {(0, None): 0.0})[0] == PENDING


def test_no_difference_can_be_found() -> None:
    """A claim that one is better does not hold where the difference is below the least one of interest."""
    one = {(seed, None): 90.0 + seed % 3 for seed in range(9)}
    same = {pair: value + 0.2 * (-1) ** pair[0] for pair, value in one.items()}
    assert better(same, one)[0] == UNDECIDED
    assert better(same, one, least=1.0)[0] == FAILS
    assert better(one, one, least=1.0)[0] == FAILS
    assert no_worse(same, one, margin=1.0)[0] == HOLDS
    assert no_worse({pair: value - 3 for pair, value in same.items()}, one, margin=1.0)[0] == FAILS
    little = {pair: value + 0.5 for pair, value in same.items()}
    assert better(little, one, least=1.0)[0] == HOLDS, "it is there, although it is small"
    assert level(little, one, margin=0.4)[0] == UNDECIDED
    assert [below(same, 90.9, least)[0] for least in (0.0, 1.0)] == [UNDECIDED, FAILS]


@pytest.mark.parametrize("truth", [-0.5, 0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("how", ["better", "no_worse", "level"])
def test_wrong_answers_are_as_rare_as_said(how: str, truth: float) -> None:
    """At most 5 % of the verdicts are wrong whatever the truth is, at the edges of both tests too."""
    least = 1.0
    right = {
        "better": ({HOLDS} if truth > 0 else set()) | ({FAILS} if truth < least else set()),
        "no_worse": ({HOLDS} if truth > -least else set()) | ({FAILS} if truth < 0 else set()),
        "level": {HOLDS} if abs(truth) < least else {FAILS},
    }[how]
    rng = np.random.default_rng(0)
    zero = {(seed, None): 0.0 for seed in range(6)}
    wrong = 0
    for _ in range(2000):
        values = {(seed, None): float(value) for seed, value in enumerate(rng.normal(truth, 0.7, 6))}
        found = {"better": better, "no_worse": no_worse, "level": level}[how](values, zero, least)
        wrong += found.verdict not in {UNDECIDED, *right}
    assert wrong / 2000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_further_figures_are_not_judged() -> None:
    answer = explored(Answer(HOLDS, "so", 0.001))
    assert answer.verdict == EXPLORATORY
    found = corrected([Verdict("one", "Table 1", "1", HOLDS, "so", 0.03), Verdict("other", "Table 1", "2", *answer)])
    assert [one.verdict for one in found] == [HOLDS, EXPLORATORY]
    assert found[0].why == "so, p = 0.030"


def test_our_questions_do_not_weaken_the_tests_of_claims() -> None:
    claims = [Verdict("claim", "Table 1", "1", HOLDS, "so", 0.03)]
    questions = [Verdict(f"question {i}", OWN, "1", UNDECIDED, "so", 0.9) for i in range(9)]
    assert corrected([*claims, *questions])[0].verdict == HOLDS


def test_the_tests_of_a_page_are_corrected_for_each_other() -> None:
    claims = [Verdict(f"claim {p}", "Table 1", "1", HOLDS, "so", p) for p in (0.001, 0.02, 0.03)]
    certain = Verdict("counted", "Table 1", "1", FAILS, "counted")
    found = corrected([*claims, certain])
    assert [one.verdict for one in found] == [HOLDS, HOLDS, HOLDS, FAILS]
    assert found[0].why == "so, p = 0.001, p = 0.003 for 3 tests"
    found = corrected([*claims, *[one._replace(p=0.9, verdict=UNDECIDED) for one in claims]])
    assert [one.verdict for one in found] == [HOLDS] + [UNDECIDED] * 5
    assert corrected(claims[:1])[0].why == "so, p = 0.001"


def test_folds_are_not_counted_as_independent() -> None:
    one = {(0, fold): 90.0 + (fold * 7) % 5 for fold in range(10)}
    other = {pair: value - 0.8 + 1.1 * (pair[1] % 2) for pair, value in one.items()}
    folds, seeds = (
        better(*[{(key(pair), fold(pair)): value for pair, value in values.items()} for values in (one, other)])
        for key, fold in ((lambda p: p[0], lambda p: p[1]), (lambda p: p[1], lambda p: None))
    )
    assert folds.p > seeds.p
    assert difference(one, other, shared=1 / 9).high - difference(one, other).mean == pytest.approx(
        math.sqrt(1 + 10 / 9) * (difference(one, other).high - difference(one, other).mean)
    )


def test_gaps_of_several_sets_are_pooled_as_in_welch() -> None:
    """Of two sets: the difference of means in Welch's test, halved."""
    stats = pytest.importorskip("scipy.stats")
    one, other = np.array([3.0, 4.0, 6.0, 3.5]), np.array([-1.0, 0.5, 2.0, 1.0, 0.0, 0.2, 0.4])
    gaps = [Gap(len(x), float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5)) for x in (one, other)]
    found = pooled(gaps)
    welch = stats.ttest_ind(one, -other, equal_var=False)
    assert found.number == 11
    assert found.mean == pytest.approx((one.mean() + other.mean()) / 2)
    assert found.freedom == pytest.approx(welch.df)
    assert positive(found).p == pytest.approx(welch.pvalue / 2)
    assert pooled(gaps[:1])[:3] == pytest.approx(gaps[0][:3])
    assert positive(pooled(gaps[:1])).p == pytest.approx(positive(gaps[0]).p)
    assert positive(pooled([])).verdict == PENDING
