"""What the geometry studies read from results, on results made up so that the answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from geonorm.lab.reproduce import geometry_batch as batch
from geonorm.lab.reproduce import geometry_growth as growth
from geonorm.lab.reproduce import geometry_robustness as robustness
from geonorm.lab.reproduce import geometry_sphere as sphere
from geonorm.lab.reproduce import study, write_page
from geonorm.lab.reproduce.results import Record, Results
from geonorm.lab.reproduce.verdicts import FAILS, HOLDS, UNDECIDED

NAMES = [f"geometry-{name}" for name in ("moments", "growth", "robustness", "sphere", "prune", "batch")]
SEEDS = range(5)


def record(part: str, norm: str, seed: int, figures: dict[str, float], **curve: list) -> Record:
    """One training; accuracies differ a little from seed to seed."""
    found = {how: {"accuracy": value + 0.001 * (seed % 3)} for how, value in figures.items()}
    return Record(f"{part}{norm}{seed}", part, {"norm": norm, "seed": seed, "fold": None}, found, curve, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_before_anything_is_trained(name: str, tmp_path: Path) -> None:
    assert write_page(name, Results("laptop", ()), tmp_path).read_text().startswith(f"# {name}")


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (lambda width, size: 0.5 if size == width else 0.4 + 0.01 * (size == 8), HOLDS),
        (lambda width, size: 0.5 if size == 512 else 0.4, FAILS),
    ],
)
def test_batch(accuracy: Callable[[int, int], float], expected: str) -> None:
    """Rates that are not the best must not matter; the best other batch does."""
    records = []
    for width in (32, 128):
        for size in (8, 32, 128, 512):
            for rate in batch.RATES:
                for seed in SEEDS:
                    clean = accuracy(width, size) - (0.1 if rate != 0.02 else 0.0002 * (seed % 2) * (size == width))
                    part = batch._part(batch.EPOCHS, width, size, rate)
                    records.append(record(part, "bn", seed, {"clean": clean}))
    page = batch.read(Results("laptop", tuple(records)))
    assert [one.verdict for one in page.verdicts[:2]] == [expected, expected]
    assert "(0.02)" in str(page.blocks)
    assert page.verdicts[2].verdict == (HOLDS if expected == HOLDS else UNDECIDED)
    unfinished = [one for one in records if "width 128, batch 512, rate 0.32" not in one.part]
    page = batch.read(Results("laptop", tuple(unfinished)))
    assert [one.claim for one in page.verdicts if "is best" in one.claim] == [
        f"width 32, {batch.EPOCHS}: a batch of 32 is best"
    ]


@pytest.mark.parametrize(("gain", "expected"), [(0.0, FAILS), (-0.1, HOLDS), (0.1, FAILS)])
def test_large_weights_amplify_attacks_only_if_accuracy_falls(gain: float, expected: str) -> None:
    controls = robustness._controls("laptop")
    records = [
        record(
            "cifar10, without weight decay",
            "bn",
            seed,
            {controls[0.1]: 0.4, controls[10.0]: 0.4 + gain + 0.0005 * (seed % 2)},
        )
        for seed in SEEDS
    ]
    found = robustness._mechanism(Results("laptop", tuple(records)), "cifar10, without weight decay", "bn", "BatchNorm")
    assert found.verdict == expected


def test_growth() -> None:
    records = []
    for norm, accuracy in (("bn", 0.5), ("ws", 0.1)):
        for part, factor in ((growth.WITHOUT, 2.0), (growth.WITH, 1.0)):
            for seed in SEEDS:
                lengths = [
                    {"whole": [9.0, 1 + 0.01 * seed + factor * epoch], "part": [9.0, 1.0]} for epoch in range(1, 4)
                ]
                records.append(record(part, norm, seed, {"clean": accuracy}, invariant_lengths=lengths))
    page = growth.read(Results("laptop", tuple(r for r in records if r.part == growth.WITHOUT)))
    assert [one.verdict for one in page.verdicts] == [UNDECIDED] * 3, "the same growth for all seeds is no statistics"
    varied = [
        one._replace(curve={"invariant_lengths": [*one.curve["invariant_lengths"], _last(one)]}) for one in records
    ]
    page = growth.read(Results("laptop", tuple(varied)))
    assert [one.verdict for one in page.verdicts] == [HOLDS, HOLDS, UNDECIDED]
    assert "did not train" in page.verdicts[-1].why


def _last(one: Record) -> dict[str, list[float]]:
    length = one.curve["invariant_lengths"][-1]["whole"][1] * (1.1 + 0.01 * one.choices["seed"])
    return {"whole": [9.0, length], "part": [9.0, 1.0]}


def test_between_points() -> None:
    points = [(-1.0, 10.0), (0.0, 20.0), (2.0, 0.0), (-9.0, 50.0)]
    assert sphere._between(points, -0.5) == 15
    assert sphere._between(points, 1.0) == 10
    assert sphere._between(points, 2.5) is None
    assert sphere._between(points, -5.0) is None, "weights that exploded"


def test_sphere_against_sgd_at_matched_rates() -> None:
    """SGD's weights have grown tenfold; its accuracy depends on the effective rate alone, as that of SphereSGD."""
    records = []
    for name, length in (("sgd", 10**0.5), ("sphere_sgd", 1.0)):
        for i, rate in enumerate(sphere.RATES):
            for seed in SEEDS:
                lengths = [{"whole": [length], "part": [length]}]
                accuracy = 0.9 - 0.1 * i + (0.2 if name == "sgd" else 0.0) + 0.002 * (seed % 2) * (name == "sgd")
                part = sphere._part(name, rate)
                records.append(record(part, "bn", seed, {"clean": accuracy}, loss=[1.0], invariant_lengths=lengths))
    found = Results("laptop", tuple(records))
    *_, matched = sphere.read(found).verdicts
    assert matched.verdict == HOLDS
    assert study("geometry-sphere").plan("laptop").keys() == {one.part for one in records}


def test_sphere_is_judged_at_rates_that_both_have_done() -> None:
    """Half-finished results: SGD alone has tried the rates that are too large for anyone."""
    curves = {"loss": [1.0], "invariant_lengths": [{"whole": [1.0], "part": [1.0]}]}
    records = [
        record(sphere._part(name, rate), "bn", seed, {"clean": 0.9 if rate < 1 else 0.1}, **curves)
        for name in sphere.OPTIMIZERS
        for rate in (sphere.RATES if name == "sgd" else sphere.RATES[:3])
        for seed in SEEDS
    ]
    spreads, mean, best, _ = sphere.read(Results("laptop", tuple(records))).verdicts
    assert {spreads.verdict, mean.verdict, best.verdict} == {UNDECIDED}
    assert mean.ours == "90.1 ± 0.1 against 90.1 ± 0.1"
