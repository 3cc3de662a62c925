"""What the geometry studies read from results, on results made up so that the answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from studies import geometry_batch as batch
from studies import geometry_growth as growth
from studies import geometry_moments as moments
from studies import geometry_prune as prune
from studies import geometry_robustness as robustness
from studies import geometry_sphere as sphere
from studies import study, write_page
from studies.geometry import LEAST
from studies.results import Pair, Record, Results
from studies.verdicts import EXPLORATORY, FAILS, HOLDS, OWN, PENDING, UNDECIDED, UNTESTED, Verdict

NAMES = [f"geometry-{name}" for name in ("moments", "growth", "robustness", "sphere", "prune", "batch")]
SEEDS = range(5)
NORMED = ("bn", "gn(groups=4)", "gn(groups=1)", "wn")


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
        (lambda width, size: 0.4, FAILS),
    ],
)
def test_batch(accuracy: Callable[[int, int], float], expected: str) -> None:
    """Rates that are not the best must not matter; the best other batch does. A batch that is no better is not best."""
    records = []
    for budget in (batch.EPOCHS, batch.STEPS):
        for width in (32, 128):
            for size in (8, 32, 128, 512):
                for rate in batch.RATES:
                    for seed in SEEDS:
                        clean = accuracy(width, size) - (0.1 if rate != 0.02 else 0.0002 * (seed % 2) * (size == width))
                        part = batch._part(budget, width, size, rate)
                        records.append(record(part, "bn", seed, {"clean": clean}))
    page = batch.read(Results("laptop", tuple(records)))
    conjecture, *singles, gain = page.verdicts
    assert conjecture.verdict == expected
    assert [one.verdict for one in singles] == [EXPLORATORY] * 4
    assert (gain.verdict, gain.published) == (HOLDS if expected == HOLDS else FAILS, OWN)
    assert "(0.02)" in str(page.blocks)
    unfinished = [one for one in records if f"{batch.STEPS}, width 128, batch 512, rate 0.32" not in one.part]
    page = batch.read(Results("laptop", tuple(unfinished)))
    assert [one.verdict for one in page.verdicts] == [EXPLORATORY] * 3, "what is not trained yet may be the best"


def test_the_luck_of_a_seed_chooses_nothing_for_it() -> None:
    """Each rate is ahead with one seed: with all seeds any of them looks better than it is, with the others none."""
    grid = {(8, rate): {(seed, None): 40.0 + 5.0 * (seed == i) for seed in SEEDS} for i, rate in enumerate(batch.RATES)}
    chosen = batch._chosen_by_others(grid, {8})
    assert list(chosen.values()) == [40.0] * len(SEEDS)
    assert batch._chosen_by_others({(8, 0.02): {(0, None): 40.0}}, {8}) == {}, "nobody else to choose"


def test_the_conjecture_must_beat_the_batch_that_is_ahead() -> None:
    """Against batches that the other seeds chose it holds; but not against the one that is ahead with all seeds."""
    own: dict[Pair, float] = {(seed, None): 41.0 + 0.1 * (seed % 2) for seed in SEEDS}
    other: dict[Pair, float] = dict.fromkeys(own, 40.0)
    ahead: dict[Pair, float] = {pair: 41.0 + 0.2 * (pair[0] % 3 - 1) for pair in own}
    judged = [batch._conjecture("", {("", 8): batch._Compared(own, other, hard)}).verdict for hard in (other, ahead)]
    assert judged == [HOLDS, UNDECIDED]


def robust(norm: str, clean: float, attack: tuple[float, float], data: str = "cifar100") -> list[Record]:
    """Accuracies under noise and BIM without and with weight decay; what the control says does not matter."""
    bim, rest = robustness._bim("laptop"), robustness._controls("laptop").values()
    return [
        record(
            f"{data}, {part}",
            norm,
            seed,
            {"clean": clean, robustness.STRONG_NOISE: 0.3}
            | dict.fromkeys(
                (robustness.NOISE, bim), attack[i] + 0.001 * seed * (norm == "bn") + 0.0005 * (seed % 3 - 1) * i
            )
            | dict.fromkeys(rest, 0.4),
        )
        for i, part in enumerate((robustness.WITHOUT, robustness.WITH))
        for seed in SEEDS
    ]


@pytest.mark.parametrize(
    ("attack", "gain", "vulnerable"),
    [((0.2, 0.24), HOLDS, HOLDS), ((0.2, 0.2), FAILS, HOLDS), ((0.5, 0.4), FAILS, FAILS)],
)
def test_robustness(attack: tuple[float, float], gain: str, vulnerable: str) -> None:
    """One verdict on weight decay over norms and tests; single norms and tests are only shown."""
    records = [one for norm in NORMED for one in robust(norm, 0.5, attack)]
    first, second, *singles = robustness.read(Results("laptop", tuple(records))).verdicts
    assert (first.verdict, second.verdict) == (vulnerable, gain)
    assert second.published == "Table 2: 29.9 → 32.9"
    assert [one.verdict for one in singles[:6]] == [EXPLORATORY] * 6, "four norms and two tests"
    assert singles[0].published == "Table 2: 30.0 → 32.6"
    missing = robustness.read(Results("laptop", tuple(records[:-1]))).verdicts
    assert missing[1].why.split(", ")[-1] == "4 runs; least of interest 5", "a mean has the seeds of all norms"


def test_a_gain_on_half_of_the_norms_counts_half() -> None:
    pairs = zip(NORMED, ((0.2, 0.3), (0.3, 0.2), (0.2, 0.3), (0.3, 0.2)), strict=True)
    records = [one for norm, attack in pairs for one in robust(norm, 0.5, attack)]
    _, gain, *_ = robustness.read(Results("laptop", tuple(records))).verdicts
    assert gain.verdict == FAILS, "the gains of two make up for the losses of the others"


def test_cifar10_decides_only_on_the_control_and_on_norms() -> None:
    records = [one for norm in NORMED for one in robust(norm, 0.5, (0.3, 0.4), "cifar10")]
    records += robust("none", 0.5, (0.35, 0.35), "cifar10")
    *_, gain, mechanism, _, _, _, single, bare = robustness.read(Results("laptop", tuple(records))).verdicts
    assert [one.verdict for one in (gain, mechanism, single, bare)] == [EXPLORATORY, FAILS, EXPLORATORY, HOLDS]
    assert gain.published == "Table 1: 67.7 → 66.6, lower"
    assert bare.published == OWN


def test_what_the_page_says_of_the_published_tables() -> None:
    lower = larger = 0
    for without, with_decay in robustness.PUBLISHED["cifar10"].values():
        for i in (1, 2):
            lower += with_decay[i] < without[i]
            larger += with_decay[0] - with_decay[i] > without[0] - without[i]
    assert (lower, larger) == (4, 6)
    assert "in 4 of 8 cases" in robustness._DIFFERS
    assert "in 6 of 8 (" in robustness._DIFFERS


def test_the_smallest_effects_of_interest_are_those_of_the_published_table() -> None:
    table = robustness.PUBLISHED["cifar100"].values()
    before, after = (fmean(row[part][i] for row in table for i in (1, 2)) for part in (0, 1))
    assert 100 * (after / before - 1) / 2 == pytest.approx(robustness.GAIN, abs=0.1)
    assert min(with_decay[i] - without[i] for without, with_decay in table for i in (1, 2)) / 2 == pytest.approx(
        LEAST, abs=0.01
    )
    assert 100 * min(1 - without[2] / without[0] for without, _ in table) / 2 == pytest.approx(robustness.LOSS, abs=0.2)


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
    assert robustness._mechanism(Results("laptop", tuple(records)), ["bn"]).verdict == expected


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
@pytest.mark.parametrize("epochs", [8, growth.LONG])
def test_growth(decayed: float, stopped: bool, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LONG", epochs)
    page = growth.read(Results("laptop", tuple(lengths("bn", 0.5, decayed))))
    grows, bn_grows, stops, bn_stops = page.verdicts
    assert grows.verdict == HOLDS
    assert stops.verdict == (HOLDS if stopped else UNDECIDED if epochs == 8 else FAILS)
    assert ("too short, 632 steps of 4,000" in stops.why) == (stops.verdict == UNDECIDED)
    assert {bn_grows.verdict, bn_stops.verdict} == {EXPLORATORY}


@pytest.mark.parametrize(("end", "expected"), [(5.01, FAILS), (5.2, HOLDS)])
def test_growth_that_cannot_be_seen_is_none(end: float, expected: str) -> None:
    curves = {
        seed: [{"whole": [9.0, size], "part": [1.0, 1.0]} for size in (5.0, end + 0.001 * seed)] for seed in SEEDS
    }
    records = [record(growth.WITHOUT, "bn", seed, {"clean": 0.5}, invariant_lengths=curves[seed]) for seed in SEEDS]
    grows, *_ = growth.read(Results("laptop", tuple(records))).verdicts
    assert grows.verdict == expected


def test_growth_is_one_claim_about_all_norms_that_trained() -> None:
    results = Results("laptop", tuple(lengths("ws", 0.1, 0.5) + lengths("sn", 0.5, 0.5) + lengths("in", 0.5, 0.5)))
    page = growth.read(results)
    found = {one.claim: one for one in page.verdicts}
    pooled, single, stops, own = page.verdicts
    assert pooled.ours.endswith("1 norms"), "SpectralNorm is not named, and weight standardization did not train"
    assert (pooled.verdict, single.verdict, own.verdict) == (HOLDS, EXPLORATORY, HOLDS)
    assert own.published == OWN
    assert stops.verdict == PENDING, "none of the four norms of the figure is there"
    assert not any("weight standardization" in claim for claim in found)
    table = page.blocks[1]
    assert [row[3] == "did not train" for row in table.rows] == [True, True, False, False, False, False]


def gaps(last: float, share: float, loss: float = 0.1, part: str = moments.CONVERGING) -> list[Record]:
    """Gaps of 1 that change in the last quarter of twelve epochs, as does the loss of 0.1, which began at 2."""
    return [
        record(
            part,
            "bn",
            seed,
            {"clean": 0.5},
            moments=[
                {gap: [9.0, last + 0.002 * seed if epoch > 8 else 1.0] for gap in moments.GAPS}
                | {one: [9.0, share + 0.002 * seed] for one in moments.SHARES}
                for epoch in range(12)
            ],
            loss=[2.0] + [1.0] * 4 + [0.1] * 4 + [loss] * 3,
        )
        for seed in SEEDS
    ]


@pytest.mark.parametrize(("last", "share", "expected"), [(1.0, 0.05, HOLDS), (2.0, 0.5, FAILS)])
def test_moments_of_trainings_that_converged(last: float, share: float, expected: str) -> None:
    *found, _, _ = moments.read(Results("laptop", tuple(gaps(last, share)))).verdicts
    assert [one.verdict for one in found] == [expected, EXPLORATORY, expected, expected, expected]
    assert all(one.why.endswith("5 of 5 runs have converged") for one in found)


def test_moments_of_trainings_that_did_not_converge_decide_nothing() -> None:
    falling = gaps(1.0, 0.05, loss=-0.2)
    *found, _, _ = moments.read(Results("laptop", tuple(falling))).verdicts
    assert {one.verdict for one in found} == {UNTESTED, EXPLORATORY}
    assert found[0].why == "0 of 5 runs have converged"
    some = moments.read(Results("laptop", (*falling[:2], *gaps(1.0, 0.05)[2:]))).verdicts
    assert some[0].verdict == HOLDS
    assert "3 runs" in some[0].why
    assert some[0].why.endswith("3 of 5 runs have converged")


def test_gaps_depend_on_the_size_of_the_initial_weights() -> None:
    records = (*gaps(1.0, 0.5, part=moments.PLAIN), *gaps(4.0, 0.5, part=moments.LARGE))
    *_, raw, unit = moments.read(Results("laptop", records)).verdicts
    assert (raw.verdict, raw.published) == (FAILS, OWN)
    assert unit.verdict == EXPLORATORY


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
    paper = prune_verdicts(pruned(cost, first=0.3))
    found, singles = paper[:6], paper[6:]
    assert [one.verdict for one in found] == [HOLDS, FAILS, FAILS, HOLDS, HOLDS, FAILS]
    assert [one.published == OWN for one in found] == [False, False, False, True, True, True]
    assert [one.verdict for one in singles] == [EXPLORATORY] * 3
    assert prune_verdicts(pruned(cost, first=0.0))[1].verdict == HOLDS


def test_prune_is_judged_on_the_mean_over_both_trainings() -> None:
    """Similar outputs in one training alone: on average they are half as similar, and that is what is judged."""
    cost = dict.fromkeys(prune.RULES, 0.1)
    records = pruned(cost)
    both = [*records, *(one._replace(part=prune.WITH, key=f"{one.key}+") for one in pruned(cost))]
    for one in both:
        near = 0.2 + 0.001 * one.choices["seed"] + (0.1 if one.part == prune.WITHOUT else -0.1)
        one.figures[prune._how("pairs", prune.SHARES[0])]["similarity"] = {"nearest": near, "random": 0.21}
    found = prune.read(Results("laptop", tuple(both))).verdicts
    assert found[0].verdict == FAILS
    assert [one.verdict for one in found[6:]] == [EXPLORATORY] * 6


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
    assert matched.claim.endswith("(5 of 7 rates overlap)")
    assert study("geometry-sphere").plan("laptop").keys() == {one.part for one in records}


@pytest.mark.parametrize(("beside", "expected"), [(0.02, HOLDS), (0.1, FAILS), (0.2, FAILS)])
def test_sphere_is_more_stable_if_it_loses_less_beside_its_best_rate(beside: float, expected: str) -> None:
    """Both have another best rate, and both fail far from it: only the rates next to it count."""
    curves = {"loss": [1.0], "invariant_lengths": [{"whole": [1.0], "part": [1.0]}]}
    records = []
    for name, best, near in (("sgd", 4, 0.1), ("sphere_sgd", 2, beside)):
        for i, rate in enumerate(sphere.RATES):
            for seed in SEEDS:
                clean = {0: 0.9, 1: 0.9 - near + 0.0005 * seed * (name == "sgd")}.get(abs(i - best), 0.1)
                records.append(record(sphere._part(name, rate), "bn", seed, {"clean": clean}, **curves))
    stable, mean, spreads, best_one, _ = sphere.read(Results("laptop", tuple(records))).verdicts
    assert stable.verdict == expected
    assert [one.verdict for one in (mean, spreads)] == [EXPLORATORY] * 2
    assert [one.published == OWN for one in (stable, mean, spreads, best_one)] == [False, False, False, True]


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
    assert [len(chart.panels) for chart in losses] == [7, 6], "all norms, and no panel with nothing in it"


def test_sphere_is_judged_at_rates_that_both_have_done() -> None:
    """Half-finished results: SGD alone has tried the rates that are too large for anyone."""
    curves = {"loss": [1.0], "invariant_lengths": [{"whole": [1.0], "part": [1.0]}]}
    records = [
        record(sphere._part(name, rate), "bn", seed, {"clean": 0.9 if rate < 1 else 0.1}, **curves)
        for name in sphere.OPTIMIZERS
        for rate in (sphere.RATES if name == "sgd" else sphere.RATES[:3])
        for seed in SEEDS
    ]
    stable, mean, _, best, _ = sphere.read(Results("laptop", tuple(records))).verdicts
    assert {stable.verdict, best.verdict} == {FAILS}
    assert mean.ours == "90.1 ± 0.1 against 90.1 ± 0.1"
