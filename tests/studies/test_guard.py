"""The studies of the guard: what they say about made-up results, whole and half finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from geonorm.lab.recipe import Run
from studies import guard, guard_adapt, guard_cifar, guard_limits, study, write_page
from studies.page import Table
from studies.results import Record, Results
from studies.verdicts import FAILS, HOLDS, OWN, UNDECIDED

NAMES = ("guard-digits", "guard-cifar", "guard-adapt", "guard-limits")
Figure = Callable[[str, Run, str], float]  # of part, run and evaluation


def made_up(name: str, figure: Figure, preset: str = "laptop") -> Results:
    """Results of a preset with accuracies as given, and a little noise by norm and seed."""
    records = []
    for part, recipe in study(name).plan(preset).items():
        for run in recipe.runs():
            figures: dict[str, Any] = {}
            for text in run["evaluations"]:
                noise = crc32(f"{part} {run['norm']} {run['seed']} {text}".encode()) % 100 / 60_000
                value = figure(part, run, text) + noise
                figures[text] = {"accuracy": value, "groups": [value, value - 0.1]}
            choices = {one: run[one] for one in ("norm", "loss", "corruption", "seed", "fold")}
            records.append(Record(run.key, part, choices, figures, {}, 1.0))
    return Results(preset, tuple(records))


def verdicts(name: str, figure: Figure) -> Mapping[str, str]:
    page = study(name).page(made_up(name, figure))
    assert {one.published for one in page.verdicts} == {OWN}, "the guard is not from a paper"
    assert len({one.claim for one in page.verdicts}) == len(page.verdicts)
    return {one.claim: one.verdict for one in page.verdicts}


def asked(found: Mapping[str, str], *words: str) -> set[str]:
    """The verdicts on all claims with some words; there is one at least."""
    chosen = {verdict for claim, verdict in found.items() if all(word in claim for word in words)}
    assert chosen, words
    return chosen


def test_digits() -> None:
    def as_hoped(part: str, run: Run, text: str) -> float:
        if run["norm"] in ("bn", "robustbn") and run["corruption"] != "clean":
            return 0.2
        return 0.8 if "share=0.4" in run["corruption"] else 0.97

    found = verdicts("guard-digits", as_hoped)
    assert asked(found, "stays within 2 points of its clean accuracy") == {HOLDS}
    assert asked(found, "level with LayerNorm") == {HOLDS}
    assert asked(found, "better than BatchNorm") == {HOLDS}
    assert asked(found, "at 40 % the guard stays within") == {FAILS}

    def one_share(part: str, run: Run, text: str) -> float:
        return 0.9 if run["corruption"] == "noise(share=0.3, strength=10)" and run["norm"] == "guardbn" else 0.97

    found = verdicts("guard-digits", one_share)
    assert asked(found, "noise: at 30 %", "stays within") == {FAILS}
    assert asked(found, "noise: at 2 % and 10 %", "stays within") == {HOLDS}
    assert asked(found, "offset", "stays within") == {HOLDS}


def test_the_same_to_the_digit() -> None:
    one = {(seed, None): 90.0 + seed for seed in range(4)}
    found = guard.same_to_the_digit("same", one, dict(one))
    assert (found.verdict, found.why) == (HOLDS, "the same in 4 of 4 pairs")
    found = guard.same_to_the_digit("same", one, {**one, (2, None): 92.5})
    assert (found.verdict, found.why) == (FAILS, "the same in 3 of 4 pairs")


def test_kept_at_all_names_the_case_that_decides() -> None:
    before = {(seed, None): 97.0 + seed % 2 for seed in range(6)}

    def less(by: float, spread: float = 0.1) -> dict[tuple[int, int | None], float]:
        return {pair: value - by + spread * (pair[0] % 3) for pair, value in before.items()}

    answer, ours = guard.kept_at_all(before, {"2 %": less(0), "30 %": less(1)})
    assert answer.verdict == HOLDS
    assert answer.why.startswith("lowest at 30 %: ")
    assert ours.startswith("96.60")
    answer, _ = guard.kept_at_all(before, {"2 %": less(9), "30 %": less(1)})
    assert answer.verdict == FAILS
    assert answer.why.startswith("at 2 %: ")
    answer, _ = guard.kept_at_all(before, {"2 %": less(0), "30 %": less(6, 4.0)})
    assert answer.verdict == UNDECIDED


def test_one_case_needs_no_name() -> None:
    before = {(seed, None): 97.0 + seed % 2 for seed in range(6)}
    answer, _ = guard.kept_at_all(before, {"30 %": dict(before)})
    assert answer.why.startswith("difference")


def test_what_was_expected() -> None:
    values = {(0, None): 97.0, (1, None): 98.0}
    table = guard.expectations("Accuracy", {"a": (97.5, values), "b": (97.6, values), "c": (1.0, {})})
    assert [(row[0], row[-1]) for row in table.rows] == [("a", "yes"), ("b", "no")]


def test_mean_over_takes_seeds_that_have_all() -> None:
    assert guard.mean_over([{(0, None): 1.0, (1, None): 2.0}, {(1, None): 4.0}]) == {(1, None): 3.0}
    assert guard.mean_over([]) == {}


def test_cifar() -> None:
    def figure(part: str, run: Run, text: str) -> float:
        if run["corruption"] == "clean" or part.endswith("guard"):
            return 0.4
        return {"vgg16, inputs": 0.45, "vgg16, plain": 0.2}.get(part, 0.3)

    found = verdicts("guard-cifar", figure)
    assert asked(found, "stays within") == {HOLDS}
    assert asked(found, "clean: the guard matches BatchNorm") == {HOLDS}
    assert asked(found, "better than BatchNorm, inputs clipped") == {FAILS}
    assert asked(found, "5 %", "better than BatchNorm, gradients clipped") == {HOLDS}
    assert asked(found, "ResNet-20", "is better than BatchNorm") == {HOLDS}
    assert not any("20 %" in claim and "dropped" in claim for claim in found), "it was not tried at that share"


def test_ways_are_what_they_are_called() -> None:
    parts = study("guard-cifar").plan("laptop")
    assert parts["vgg16, gradients"].clip_gradients == 1
    assert parts["vgg16, inputs"].clip_inputs == 5
    assert parts["vgg16, skipping"].skip_nonfinite
    assert all(len(recipe.seeds) >= 10 for recipe in parts.values())
    assert set(guard_cifar.WAYS["robust"].shares) == {0.05}


def test_adapt() -> None:
    def figure(part: str, run: Run, text: str) -> float:
        if text == "clean" or "share=0," in text:
            return 0.3 if "by=nothing" in text or "by=iabn," in text else 0.7
        if "by=guard" in text:
            return 0.6 if "share=0.4" in text else 0.69
        return 0.69 if "by=plain, junk=stuck" in text else 0.2

    found = verdicts("guard-adapt", figure)
    assert asked(found, "no junk") == {HOLDS}
    assert asked(found, "unscaled, 5 %") == {HOLDS}
    assert asked(found, "unscaled, 40 %: the guard stays") == {FAILS}
    assert asked(found, "mean of all junk") == {HOLDS}
    assert asked(found, "white frames, 20 %") == {UNDECIDED}
    assert sum("mean of all junk" in claim for claim in found) == len(guard_adapt.MEASURED | guard_adapt.KEPT) - 2


def test_limits() -> None:
    def figure(part: str, run: Run, text: str) -> float:
        norm, corruption = run["norm"], run["corruption"]
        if "share=0.6" in corruption or (corruption != "clean" and norm == "bn"):
            return 0.3
        return 0.85 if norm == "guardbn(guard=1.5)" else 0.95

    found = verdicts("guard-limits", figure)
    assert asked(found, "60 %: the guard stays") == {FAILS}
    assert asked(found, "40 %: the guard stays") == {HOLDS}
    assert asked(found, "batches of 8", "better than BatchNorm") == {HOLDS}
    assert asked(found, "k=1.5 is level") == {FAILS}
    assert asked(found, "k=6 is level") == {HOLDS}
    assert asked(found, "minority", "better than BatchNorm") == {HOLDS}
    assert asked(found, "white frames") == {HOLDS}


def test_majority_and_minority_are_told_apart() -> None:
    results = made_up("guard-limits", lambda part, run, text: 0.9)
    of = [guard_limits._group(results, "guardbn(guard=2)", group) for group in (0, 1)]
    assert len(of[0]) == 10
    assert all(of[0][pair] - of[1][pair] == pytest.approx(10) for pair in of[0])


@pytest.mark.parametrize("preset", ["laptop", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_half_finished_results_have_a_page(name: str, preset: str, tmp_path: Path) -> None:
    whole = made_up(name, lambda part, run, text: 0.5, preset)
    for number in (0, 1, len(whole.records) // 2 + 1):
        page = study(name).read(Results(preset, whole.records[:number]))
        for block in page.blocks:
            if isinstance(block, Table):
                assert all(len(row) == len(block.heads) for row in block.rows), block.title
    if preset == "laptop":
        pytest.importorskip("matplotlib")
        assert write_page(name, Results(preset, whole.records[:7]), tmp_path).exists()
