"""Three pages of results, recomputed from the stored lines with numpy and scipy alone.

Nothing of this library is imported: figures, intervals, corrected p values and verdicts must come out as on the pages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
Values = np.ndarray  # one for each seed, in the order of the seeds


class Claim(NamedTuple):
    """A row of a page, recomputed.

    Attributes:
        ours: its figures, as means with deviations.
        differences: of each seed.
        holds: the bound that the difference is above if the claim holds.
        fails: the bound that it is below if the claim does not hold.
        digits: of the figures.
    """

    ours: tuple[Values, ...]
    differences: Values
    holds: float = 0.0
    fails: float = 0.0
    digits: int = 2

    @property
    def p(self) -> float:
        """Of the test that decides; NaN where all differences are equal and nothing is tested."""
        if np.ptp(self.differences) < 1e-12:
            return math.nan
        holds = stats.ttest_1samp(self.differences, self.holds, alternative="greater").pvalue
        fails = stats.ttest_1samp(self.differences, self.fails, alternative="less").pvalue
        return holds if holds < 0.05 else min(holds, fails)


class Same(Claim):
    """Two figures that differ by less than a margin."""

    @property
    def p(self) -> float:
        if np.ptp(self.differences) < 1e-12:
            return math.nan
        above = [stats.ttest_1samp(self.differences, bound, alternative="greater").pvalue for bound in (-2, 2)]
        below = [stats.ttest_1samp(self.differences, bound, alternative="less").pvalue for bound in (-2, 2)]
        inside, outside = max(above[0], below[1]), min(above[1], below[0])
        return inside if inside < 0.05 else min(inside, outside)


def records(study: str) -> list[dict[str, Any]]:
    lines = (ROOT / "results" / study / "laptop.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def by_seed(found: list[dict[str, Any]], value: Callable[[dict[str, Any]], float], **wanted: Any) -> Values:
    chosen = {
        one["choices"]["seed"]: value(one)
        for one in found
        if all((one["part"] if name == "part" else one["choices"][name]) == of for name, of in wanted.items())
    }
    assert chosen
    return np.array([chosen[seed] for seed in sorted(chosen)])


def rows(study: str) -> dict[str, list[str]]:
    """The cells of all judged rows, by claim."""
    page = (ROOT / "docs" / "reproduce" / f"{study}.md").read_text(encoding="utf-8").split("### Further figures")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "| **" in line]
    return {row[0]: row[1:] for row in cells if row[1] in ("**holds**", "**does not hold**", "**undecided**")}


def holm(ps: list[float]) -> list[float]:
    """Adjusted p values, step by step from the smallest."""
    order = sorted((p, i) for i, p in enumerate(ps) if not math.isnan(p))
    adjusted, reached = [math.nan] * len(ps), 0.0
    for rank, (p, i) in enumerate(order):
        reached = max(reached, min(1.0, (len(order) - rank) * p))
        adjusted[i] = reached
    return adjusted


def kappa() -> dict[str, Claim]:
    found = records("popnorm-kappa")
    activations = ("sigmoid", "tanh", "relu")
    start = math.log(10)

    def mean_of(value: Callable[[dict[str, Any]], float], norm: str, suffix: str = "") -> Values:
        return np.mean([by_seed(found, value, part=name + suffix, norm=norm) for name in activations], axis=0)

    def last(one: dict[str, Any]) -> float:
        return one["curve"]["loss"][-1]

    def whole(one: dict[str, Any]) -> float:
        return float(np.mean(one["curve"]["loss"]))

    names = {4: "pop", 1: "pop(kappa=1)", 16: "pop(kappa=16)"}
    end = {k: mean_of(last, norm) for k, norm in names.items()}
    mean = {k: mean_of(whole, norm) for k, norm in names.items()}
    imitated = mean_of(last, names[1], ", everything as if κ=4")
    share = {k: (mean[k] - end[k]) / (start - end[k]) for k in names}
    least = round(start / 50, 3)
    pooled = "mean of three activations"

    def lower(one: Values, other: Values) -> Claim:
        return Claim((one, other), other - one, 0.0, least, 3)

    return {
        f"κ=4 trains faster than κ=1, {pooled}": lower(mean[4], mean[1]),
        f"κ=4 ends with a lower training loss than κ=1, {pooled}": lower(end[4], end[1]),
        f"κ=16 is too much: κ=4 ends with a lower training loss than κ=16, {pooled}": lower(end[4], end[16]),
        f"κ=16 comes near its own final loss sooner than κ=4 does, {pooled}": Claim(
            (share[16], share[4]), share[4] - share[16], 0.0, 0.02, 3
        ),
        f"κ=4 ends with a lower training loss than κ=1 with all initial weights/4 and all rates/16, {pooled}": lower(
            end[4], imitated
        ),
    }


def guard() -> dict[str, Claim]:
    found = records("guard-digits")
    faults = {
        "offset": "offset(share={}, strength=50)",
        "heavy tails": "heavy_tails(share={}, strength=1)",
        "gain": "gain(share={}, strength=20)",
        "one pixel": "feature(share={}, strength=100)",
        "unscaled": "gain(share={}, strength=255)",
        "noise": "noise(share={}, strength=10)",
    }

    def accuracy(size: int, norm: str, corruption: str) -> Values:
        return by_seed(
            found,
            lambda one: 100 * one["figures"]["clean"]["correct"] / one["figures"]["clean"]["total"],
            part=f"batch {size}",
            norm=norm,
            corruption=corruption,
        )

    def over(shares: tuple[float, ...], size: int, norm: str, kinds: list[str]) -> Values:
        return np.mean([accuracy(size, norm, kind.format(share)) for kind in kinds for share in shares], axis=0)

    claims: dict[str, Claim] = {}
    for size in (64, 16):
        clean = accuracy(size, "guardbn", "clean")
        plain = accuracy(size, "bn", "clean")
        claims[f"batch {size}, clean: the guard matches BatchNorm (within 2 points)"] = Same(
            (clean, plain), clean - plain
        )
        for name, kind in faults.items():
            own, batch, layer = (over((0.02, 0.1, 0.3), size, norm, [kind]) for norm in ("guardbn", "bn", "ln"))
            start = f"batch {size}, {name}, mean of 2 %, 10 %, 30 %: the guard is"
            claims[f"{start} level with LayerNorm (within 2 points)"] = Same((own, layer), own - layer)
            claims[f"{start} better than BatchNorm"] = Claim((own, batch), own - batch)
        most = over((0.4,), size, "guardbn", list(faults.values()))
        claims[f"batch {size}, mean of the faults: at 40 % the guard stays within 2 points"] = Claim(
            (most, clean), most - clean, -2.0, -2.0
        )
    return claims


def prune() -> dict[str, Claim]:
    found = records("geometry-prune")
    arms = ("without weight decay", "with weight decay")

    def mean_over_arms(value: Callable[[dict[str, Any]], float]) -> Values:
        return np.mean([by_seed(found, value, part=arm) for arm in arms], axis=0)

    def accuracy(name: str) -> Values:
        return mean_over_arms(lambda one: 100 * one["figures"][name]["accuracy"])

    rule = {
        name: np.mean([accuracy(f"pruned(rule={name}, share=0.{tenth})") for tenth in range(1, 6)], axis=0)
        for name in ("pairs", "random_pairs", "outputs", "gamma", "random")
    }
    nearest, chance = (
        mean_over_arms(lambda one, of=of: one["figures"]["pruned(rule=pairs, share=0.1)"]["similarity"][of])
        for of in ("nearest", "random")
    )
    whole, few = accuracy("clean"), accuracy("pruned(rule=pairs, share=0.1)")

    def dearer(one: str, other: str) -> Claim:
        return Claim((rule[one], rule[other]), rule[one] - rule[other], 0.0, 0.8, 1)

    return {
        "channels close in (γ, β) have similar outputs": Claim((nearest, chance), nearest - chance, 0.0, 0.1),
        # The difference on the page is the loss of accuracy beyond the bound.
        "merging 10 % of channels with ones close in (γ, β) maintains accuracy (within 0.8 points)": Claim(
            (whole, few), few - whole, -0.8, -0.8, 1
        ),
        "dropping the smallest &#124;γ&#124; costs less than dropping any": dearer("gamma", "random"),
        "merging pairs close in (γ, β) costs less than merging random pairs": dearer("pairs", "random_pairs"),
        "merging pairs close in (γ, β) costs less than dropping the smallest &#124;γ&#124;": dearer("pairs", "gamma"),
        "merging pairs close in (γ, β) costs less than pairs with close outputs": dearer("pairs", "outputs"),
    }


PAGES = {"popnorm-kappa": kappa, "guard-digits": guard, "geometry-prune": prune}


def groups_of(claims: dict[str, Claim], found: dict[str, list[str]]) -> Iterator[dict[str, Claim]]:
    """The claims of the paper, whose rows have one cell more, and our questions."""
    for cells in (4, 3):
        group = {name: one for name, one in claims.items() if len(found[name]) == cells}
        if group:
            yield group


@pytest.mark.parametrize("study", PAGES)
def test_figures_and_verdicts_come_out_again(study: str) -> None:
    found, claims = rows(study), PAGES[study]()
    assert claims.keys() <= found.keys()
    # Rows about single fractions are not tested together with the others: they have no corrected p value.
    assert {name for name, cells in found.items() if " tests" in cells[-1] or ", p " in cells[-1]} <= claims.keys()
    for group in groups_of(claims, found):
        adjusted = holm([one.p for one in group.values()])
        for (name, one), p in zip(group.items(), adjusted, strict=True):
            verdict, *_, ours, why = found[name]
            for values in one.ours:
                assert f"{values.mean():.{one.digits}f} ± {values.std(ddof=1):.{one.digits}f}" in ours, name
            if math.isnan(p):
                assert "in all 10 pairs" in why
                continue
            check_why(name, one, p, why)
            assert verdict == f"**{verdict_of(one, p)}**", name


def verdict_of(one: Claim, p: float) -> str:
    if p >= 0.05:
        return "undecided"
    mean = one.differences.mean()
    if isinstance(one, Same):
        return "holds" if abs(mean) < 2 else "does not hold"
    return (
        "holds"
        if stats.ttest_1samp(one.differences, one.holds, alternative="greater").pvalue < 0.05
        else "does not hold"
    )


def check_why(name: str, one: Claim, p: float, why: str) -> None:
    """The mean difference, its interval and the corrected p value, up to the last digit shown."""
    mean, low, high = (float(text) for text in re.findall(r"[+-]\d+\.\d+", why)[:3])
    shown = one.differences
    if "from the bound" in why:
        shown = -(shown - one.holds)
    expected = stats.ttest_1samp(shown, 0.0).confidence_interval(0.9)
    assert mean == pytest.approx(shown.mean(), abs=0.0051), name
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.0051), name
    sign, digits = re.findall(r"p ([<=]) (0\.\d+)", why)[-1]
    if sign == "<":
        assert p < float(digits), name
    else:
        assert p == pytest.approx(float(digits), abs=0.6 * 10 ** -(len(digits) - 2)), name
