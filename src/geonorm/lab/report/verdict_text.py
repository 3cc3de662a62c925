"""The answer in a few sentences: first what happened, in words that follow the size of the effect, then how sure it is.

A run that fails, a norm that stays above a value and one that reaches the highest are facts of these runs. What they
say about other runs is for the tests: a difference is beyond chance, within noise if it is small, or could be chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..results import Column, Comparison
from ..statistics import Difference, Verdict
from .contents import Contents, gather
from .effect import CLOSE, Runs
from .labels import circumstances, display_name, listed, number, probability, sentence, signed

_COARSE = 10.0  # points between the lowest and the highest run of a column, beyond which decimals say nothing


def answer(comparison: Comparison | Contents, baseline: str | None = None) -> str:
    """The result in a few sentences that need no knowledge of this library.

    Args:
        comparison: with at least one run; or the result of ``gather``.
        baseline: as in ``write``.
    """
    return " ".join(paragraphs(gather(comparison, baseline)))


def paragraphs(contents: Contents) -> list[str]:
    """The answer in parts: the column with the largest effect, the last one, which is of clean data, and the others."""
    if not contents.finished:
        return ["No run is finished yet."]
    columns = list(contents.verdicts)
    largest = max(columns, key=lambda column: _largest_effect(contents.verdicts[column]))
    last = next((column for column in reversed(columns) if column != largest), largest)
    told = [column for column in columns if column in (largest, last)]
    rest = [contents.verdicts[column] for column in columns if column not in told]
    return [*[column_text(contents, column) for column in told], *_others(rest), *_how_sure(contents, told)]


def _largest_effect(verdict: Verdict) -> float:
    """The largest difference to the baseline beyond chance, to choose the column that is told."""
    return max((abs(gap.mean) for gap in verdict.to_baseline.values() if gap.is_real), default=0.0)


def _others(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence about the other columns, because the two that are described were selected."""
    if not verdicts:
        return []
    won, baseline = sum(verdict.beats_baseline for verdict in verdicts), display_name(verdicts[0].baseline)
    if len(verdicts) == 1:
        return [f"In the other column, {'a' if won else 'no'} norm beats {baseline} beyond chance."]
    some = f"{number(won)} have" if won > 1 else "one has" if won else "none has"
    return [f"Of the {number(len(verdicts))} other columns, {some} a norm that beats {baseline} beyond chance."]


def _how_sure(contents: Contents, told: Sequence[Column]) -> list[str]:
    """The number of seeds, and how far the intervals of the differences reach."""
    reach = {}
    for column in told:
        gaps = contents.verdicts[column].to_baseline.values()
        widths = [(gap.high - gap.low) / 2 for gap in gaps if not math.isnan(gap.low)]
        if widths:
            reach[column] = f"±{max(widths):.1f} points on {contents.labels[column]}"
    if not reach:
        return []
    seeds = len(contents.seeds())
    return [
        f"How sure: {number(seeds)} seeds; the 95 % intervals of the differences to "
        f"{display_name(contents.baseline)} reach up to {listed(list(reach.values()))}."
    ]


def column_text(contents: Contents, column: Column) -> str:
    """The result of one column in a few sentences."""
    say_loss = len({other.loss for other in contents.verdicts}) > 1
    runs = contents.runs[column]
    first, *rest = [*_what_happened(runs), *_what_is_certain(contents.verdicts[column], runs)] or [
        "no run is finished yet"
    ]
    names = tuple(display_name(norm) for norm in contents.norms)
    sentences = [text if text.startswith(names) else sentence(text) for text in rest]  # specs are not capitalized
    return " ".join(f"{text}." for text in [f"{circumstances(column, say_loss)}, {first}", *sentences])


def _what_happened(runs: Mapping[str, Runs]) -> list[str]:
    """Which norms diverged, failed, stayed above a value, and reached the highest, in this order."""
    there = {norm: found for norm, found in runs.items() if found.accuracies}
    lost = [
        f"{display_name(norm)} diverged in {found.diverged} of {found.diverged + len(found.accuracies)} runs"
        for norm, found in runs.items()
        if found.diverged
    ]
    said = [listed(lost)] if lost else []
    if not there:
        return said
    values = [value for found in there.values() for value in found.accuracies.values()]
    digits = 0 if max(values) - min(values) > _COARSE else 1
    most = max(len(found.accuracies) for found in there.values())
    wholly = {norm: found for norm, found in there.items() if found.failed == len(found.accuracies)}
    partly = {norm: found for norm, found in there.items() if found.failed and norm not in wholly}
    between = {norm: found for norm, found in there.items() if not found.failed and not found.is_close}
    close = {norm: found for norm, found in there.items() if found.is_close}
    if wholly:
        how_often = f"all {number(most)} runs" if most > 1 else "its run"
        said.append(f"{_names(wholly)} failed in {how_often} ({_span(wholly, digits)})")
    if partly:
        counts = sorted({found.failed for found in partly.values()})
        how_often = number(counts[0]) if len(counts) == 1 else f"{number(counts[0])} to {number(counts[-1])}"
        said.append(f"{_names(partly)} failed in {how_often} of {number(most)} runs ({_span(partly, digits)})")
    if between and most > 1:
        above = [f"{display_name(norm)} above {_below(found.worst, digits)} %" for norm, found in between.items()]
        first, *others = above
        said.append(listed([first.replace(" above", " stayed above", 1), *others], most=4))
    elif between:
        said.append(f"{_names(between)} reached {_span(between, digits)}")
    if close:
        everyone = len(close) == len(there) > 3
        means = [sum(found.accuracies.values()) / len(found.accuracies) for found in close.values()]
        who = f"all {number(len(close))} norms" if everyone else _names(close)
        said.append(f"{who} reached {_between(min(means), max(means), digits)}")
    return said


def _what_is_certain(verdict: Verdict, runs: Mapping[str, Runs]) -> list[str]:
    """Which differences to the baseline are beyond chance, and which could be chance."""
    base = display_name(verdict.baseline)
    there = [norm for norm, found in runs.items() if found.accuracies]
    gaps = {norm: gap for norm, gap in verdict.to_baseline.items() if norm in there}
    if len(there) < 2:
        return ["there is nothing to compare it with yet"] if there else []
    if verdict.pairs < 2:
        one_each = max(len(runs[norm].accuracies) for norm in there) < 2
        return [
            "with one run of each norm, every difference could be chance"
            if one_each
            else f"too few runs are done to compare them with {base}"
        ]
    if not verdict.is_tested:
        return [f"every run differs from that of {base} by the same amount, which no test can judge"]
    largest = max(abs(gap.mean) for gap in gaps.values() if gap.number)
    if verdict.is_noise and largest <= CLOSE:
        most = math.ceil(10 * largest - 1e-9) / 10
        return [f"no difference to {base} is larger than {most:.1f} points, and all are within noise"]
    said = []
    if verdict.best in gaps and gaps[verdict.best].mean > 0:
        said += _about_the_lead(verdict, verdict.best, gaps[verdict.best])
    if verdict.ahead:
        numbers = {norm: len(runs[norm].accuracies) for norm in verdict.ahead}
        lucky = [f"{display_name(norm)} ({of} run{'s' * (of != 1)})" for norm, of in numbers.items()]
        said.append(f"higher, but over fewer runs, which may be the lucky ones: {listed(lucky)}")
    worse = [f"{display_name(norm)} by {-gap.mean:.1f}" for norm, gap in gaps.items() if gap.is_real and gap.mean < 0]
    if worse:
        said.append(f"worse than {base} beyond chance: {listed(worse)} points")
    unsure = [
        f"{display_name(norm)} {signed(gap.mean)}"
        for norm, gap in gaps.items()
        if norm != verdict.best and not gap.is_real and abs(gap.mean) > CLOSE
    ]
    if unsure:
        said.append(f"differences to {base} that could be chance: {listed(unsure)} points")
    return said or [f"no norm is better or worse than {base} beyond chance"]


def _about_the_lead(verdict: Verdict, best: str, gap: Difference) -> list[str]:
    """How far the best norm is above the baseline, and which others are not told from it."""
    name, base = display_name(best), display_name(verdict.baseline)
    if math.isnan(gap.p):
        return [f"{name} is {gap.mean:.1f} points above {base} in every pair of runs, which no test can judge"]
    interval = f"95 % interval {gap.low:.1f} to {gap.high:.1f}".replace("-", "−")
    if not gap.is_real:
        if gap.mean <= CLOSE:
            return []
        return [f"the {gap.mean:.1f} points of {name} over {base} could be chance ({interval}); more seeds would tell"]
    said = [f"{name} is {gap.mean:.1f} points above {base} ({interval}, {probability(gap.p)})"]
    level = {norm: -verdict.to_best[norm].mean for norm in verdict.level_with_best if norm != verdict.baseline}
    untested = [display_name(norm) for norm in level if math.isnan(verdict.to_best[norm].p)]
    for words, is_small in (("is within noise", True), ("could be chance", False)):
        lead = {
            norm: by for norm, by in level.items() if (by <= CLOSE) == is_small and display_name(norm) not in untested
        }
        if lead:
            by = [f"{display_name(norm)} ({points:.1f} points)" for norm, points in lead.items()]
            said.append(f"its lead over {listed(by)} {words}")
    return [*said, f"no test of it against {listed(untested)}"] if untested else said


def _names(norms: Mapping[str, Runs]) -> str:
    return listed([display_name(norm) for norm in norms])


def _span(norms: Mapping[str, Runs], digits: int) -> str:
    """The lowest and the highest run."""
    values = [value for found in norms.values() for value in found.accuracies.values()]
    return _between(min(values), max(values), digits)


def _between(low: float, high: float, digits: int) -> str:
    """Such as ``10–30 %``; one number if both are the same."""
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return f"{first} %" if first == last else f"{first}–{last} %"


def _below(value: float, digits: int) -> str:
    """A number with so many digits that is below the value."""
    scale = 10**digits
    return f"{(math.ceil(value * scale - 1e-9) - 1) / scale:.{digits}f}"
