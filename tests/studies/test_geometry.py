"""What the geometry studies read from results, on results made up so that the answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from studies import geometry_batch as batch
from studies import geometry_growth as growth
from studies import geometry_moments as moments
from studies import geometry_prune as prune
from studies import geometry_robustness as robustness
from studies import geometry_sphere as sphere
from studies import study, write_page
from studies.results import Pair, Record, Results
from studies.verdicts import FAILS, HOLDS, OWN, UNDECIDED, Verdict

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


def test_the_best_of_several_others_is_ahead_by_chance_more_easily() -> None:
    own: dict[Pair, float] = {(seed, None): 40.0 for seed in SEEDS}
    ahead: dict[Pair, float] = {(seed, None): 40.0 + 0.45 * seed for seed in SEEDS}
    assert [batch._against_best(own, ahead, rivals).verdict for rivals in (1, 3)] == [FAILS, UNDECIDED]
    one, three = (batch._against_best(own, ahead, rivals).p for rivals in (1, 3))
    assert three == pytest.approx(3 * one)
    assert batch._against_best(ahead, own, 3).p == one, "to beat the best of them is hard enough"
    assert batch._against_best(own, ahead, 3).why.endswith("p times 3 for as many others")


def robust(norm: str, noise: tuple[float, float], attack: tuple[float, float]) -> list[Record]:
    """Accuracies without and with weight decay; what the control says does not matter."""
    bim, rest = robustness._bim("laptop"), robustness._controls("laptop").values()
    return [
        record(
            f"cifar10, {part}",
            norm,
            seed,
            {"clean": 0.5, robustness.NOISE: noise[i] + 0.001 * seed * i, robustness.STRONG_NOISE: 0.3}
            | {bim: attack[i] + 0.001 * seed * (norm == "bn") + 0.0005 * seed * i}
            | dict.fromkeys(rest, 0.4),
        )
        for i, part in enumerate((robustness.WITHOUT, robustness.WITH))
        for seed in SEEDS
    ]


def test_robustness() -> None:
    """Weight decay helps against noise and makes an attack worse; without a norm the attack is weaker."""
    records = robust("bn", (0.3, 0.4), (0.3, 0.2)) + robust("none", (0.3, 0.3), (0.35, 0.35))
    noise, attack, bare, control = robustness.read(Results("laptop", tuple(records))).verdicts
    assert [one.verdict for one in (noise, attack, bare, control)] == [HOLDS, FAILS, HOLDS, FAILS]
    assert noise.published == "Table 1: 81.25 → 78.12, lower"
    assert attack.published == "Table 1: 53.80 → 60.00"
    assert bare.published == OWN


def test_what_the_page_says_of_the_published_table() -> None:
    lower = larger = 0
    for without, with_decay in robustness.PUBLISHED["cifar10"].values():
        for i in (1, 2):
            lower += with_decay[i] < without[i]
            larger += with_decay[0] - with_decay[i] > without[0] - without[i]
    assert (lower, larger) == (4, 6)
    assert "in 4 of 8 cases" in robustness._DIFFERS
    assert "in 6 of 8 (" in robustness._DIFFERS


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


def lengths(norm: str, accuracy: float, decayed: float, noise: float = 0.1) -> list[Record]:
    """Weights that grow by 1 in every epoch; with weight decay by something else."""
    return [
        record(
            part,
            norm,
            seed,
            {"clean": accuracy},
            invariant_lengths=[
                {"whole": [9.0, 5 + step * (1 + noise * seed) * epoch], "part": [9.0, 1.0]} for epoch in range(1, 9)
            ],
        )
        for part, step in ((growth.WITHOUT, 1.0), (growth.WITH, decayed))
        for seed in SEEDS
    ]


@pytest.mark.parametrize(("decayed", "stopped"), [(0.0, True), (-0.1, True), (0.5, False), (2.0, False)])
@pytest.mark.parametrize("epochs", [growth.EPOCHS, 100])
def test_growth(decayed: float, stopped: bool, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "EPOCHS", epochs)
    page = growth.read(Results("laptop", tuple(lengths("bn", 0.5, decayed))))
    grows, shorter, stops = page.verdicts
    assert grows.verdict == HOLDS
    assert shorter.verdict == (HOLDS if decayed < 1 else FAILS)
    assert stops.verdict == (HOLDS if stopped else UNDECIDED if epochs == 8 else FAILS)
    assert ("too short, 632 steps of 4,000" in stops.why) == (stops.verdict == UNDECIDED)


def test_growth_of_others_and_of_those_that_did_not_train() -> None:
    results = Results("laptop", tuple(lengths("ws", 0.1, 0.5) + lengths("sn", 0.5, 0.5) + lengths("in", 0.5, 0.5)))
    page = growth.read(results)
    assert [(one.published, one.verdict) for one in page.verdicts] == [
        ("Section 2.5, no figure", UNDECIDED),
        (OWN, UNDECIDED),
        (OWN, HOLDS),
        (OWN, HOLDS),
        ("Section 2.5, no figure", HOLDS),
        (OWN, HOLDS),
    ]
    assert "did not train" in page.verdicts[1].why
    table = page.blocks[1]
    assert [row[3] == "did not train" for row in table.rows] == [True, True, False, False, False, False]
    same = growth.read(Results("laptop", tuple(lengths("in", 0.5, 0.5, noise=0.0)))).verdicts
    assert {one.verdict for one in same} == {UNDECIDED}, "the same growth for all seeds is no statistics"


def gaps(part: str, last: float, share: float) -> list[Record]:
    """Gaps of 1 that change in the last quarter of twelve epochs."""
    return [
        record(
            part,
            "bn",
            seed,
            {"clean": 0.5},
            moments=[
                {gap: [9.0, last + 0.002 * seed if epoch > 8 else 1.0] for gap in moments.GAPS}
                | {"gamma_share": [9.0, share + 0.002 * seed]}
                for epoch in range(12)
            ],
        )
        for seed in SEEDS
    ]


def test_moments_at_both_rates() -> None:
    """The paper's rate comes first; there all is as it says, at the other nothing is."""
    found = moments.read(Results("laptop", (*gaps(moments.PLAIN, 2.0, 0.5), *gaps(moments.SLOW, 1.0, 0.05)))).verdicts
    assert [one.claim.partition(":")[0] for one in found] == ["rate 0.001"] * 3 + ["rate 0.05"] * 3
    assert [one.verdict for one in found] == [HOLDS] * 3 + [FAILS] * 3
    paper = moments.read(Results("paper", tuple(gaps(moments.PLAIN, 1.0, 0.05)))).verdicts
    assert [one.claim.partition(":")[0] for one in paper] == ["rate 0.001"] * 3


def pruned(cost: dict[str, float], first: float | None = None) -> list[Record]:
    """Networks that lose the same at all shares, by rule; pairs may lose something else at the first."""
    return [
        record(
            prune.WITHOUT,
            "bn",
            seed,
            {"clean": 0.5}
            | {
                prune._how(rule, share): 0.5
                - (first if first is not None and rule == "pairs" and share == prune.SHARES[0] else cost[rule])
                - 0.0005 * seed * (rule == "pairs")
                for rule in prune.RULES
                for share in prune.SHARES
            },
        )
        for seed in SEEDS
    ]


def prune_verdicts(records: list[Record]) -> list[Verdict]:
    for one in records:
        near = 0.3 + 0.01 * one.choices["seed"]
        one.figures[prune._how("pairs", prune.SHARES[0])]["similarity"] = {"nearest": near, "random": 0.2}
    return list(prune.read(Results("laptop", tuple(records))).verdicts)


def test_prune() -> None:
    """Rules are compared over all shares: one at which pairs lose everything does not turn the verdicts."""
    cost = {"pairs": 0.1, "random_pairs": 0.2, "outputs": 0.02, "gamma": 0.2, "random": 0.2}
    found = prune_verdicts(pruned(cost, first=0.3))
    assert [one.verdict for one in found] == [HOLDS, FAILS, HOLDS, HOLDS, FAILS, UNDECIDED]
    assert [one.published == OWN for one in found] == [False, False, True, True, True, False]
    assert prune_verdicts(pruned(cost, first=0.0))[1].verdict == HOLDS


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
    assert matched.claim.endswith("(4 of 6 rates overlap)")
    assert study("geometry-sphere").plan("laptop").keys() == {one.part for one in records}


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_sphere_varies_less_only_where_both_train(factor: float) -> None:
    """At rates from 1 on SphereSGD fails with all seeds alike, and SGD with some: that is no stability."""
    curves = {"loss": [1.0], "invariant_lengths": [{"whole": [1.0], "part": [1.0]}]}
    records = []
    for name in sphere.OPTIMIZERS:
        for i, rate in enumerate(sphere.RATES):
            for seed in SEEDS:
                width = (0.001 + 0.0002 * i) * (factor if name == "sphere_sgd" else 1.0)
                good = 0.9 + width * seed
                clean = good if rate < 1 else (0.1 if name == "sphere_sgd" else 0.2 * (seed % 2))
                records.append(record(sphere._part(name, rate), "bn", seed, {"clean": clean}, **curves))
    spreads, mean, *_ = sphere.read(Results("laptop", tuple(records))).verdicts
    assert spreads.verdict == (HOLDS if factor < 1 else FAILS)
    assert "4 pairs" in spreads.why
    assert [spreads.published == OWN, mean.published == OWN] == [False, True]


def test_sphere_marks_what_diverged_and_counts_it_as_chance() -> None:
    records = []
    for norm in ("bn", "wn"):
        for name in sphere.OPTIMIZERS:
            for rate in sphere.RATES:
                for seed in SEEDS:
                    is_lost = norm == "wn" and rate > 1
                    curves = {
                        "loss": [1.0, math.nan if is_lost else 1.0],
                        "invariant_lengths": [{"whole": [1.0], "part": [math.nan if is_lost else 1.0]}],
                    }
                    clean = -0.001 * (seed % 3) if is_lost else 0.9
                    records.append(record(sphere._part(name, rate), norm, seed, {"clean": clean}, **curves))
    results = Results("laptop", tuple(records))
    table, _, *losses = sphere.read(results).blocks
    assert [row[-1] for row in table.rows[2:]] == ["diverged", "diverged"]
    assert set(sphere._accuracies(results, "sgd", 3.0, "wn").values()) == {sphere.CHANCE}
    assert [len(chart.panels) for chart in losses] == [6, 5], "all norms, and no panel with nothing in it"


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
