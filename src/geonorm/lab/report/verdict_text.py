"""The answer in a sentence or two, and cautions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..results import Column, Comparison
from ..statistics import Summary, Verdict
from .contents import Contents, gather
from .labels import circumstances, display_name, listed, number, probability, sentence

_WIDE = 5.0  # points between the lowest and the highest norm that look like more than noise, so the text explains them
_ENOUGH = 5  # seeds: with fewer, only very large differences can be distinguished from chance


class Caution(NamedTuple):
    """Something to know when reading the report: a warning, or a note if it applies to every such comparison."""

    severity: str
    text: str


def answer(comparison: Comparison | Contents, baseline: str | None = None) -> str:
    """The result in one or two sentences that need no knowledge of this library.

    Args:
        comparison: with at least one run; or the result of ``gather``.
        baseline: as in ``write``.
    """
    return short_answer(gather(comparison, baseline))


def short_answer(contents: Contents) -> str:
    """The first column, the one with the largest gain over the baseline, and how many others have a winner."""
    first, *others = contents.verdicts
    if not contents.finished:
        return "No run is finished yet."
    told = [first, *([max(others, key=lambda column: _gain(contents.verdicts[column]))] if others else [])]
    rest = [verdict for column, verdict in contents.verdicts.items() if column not in told]
    return " ".join([*[column_sentence(contents, column) for column in told], *_others(rest)])


def _others(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence about the other columns, because the two that are described were selected."""
    if not verdicts:
        return []
    won, baseline = sum(verdict.beats_baseline for verdict in verdicts), display_name(verdicts[0].baseline)
    if len(verdicts) == 1:
        return [f"In the other column, {'a' if won else 'no'} norm beats {baseline} beyond chance."]
    some = f"{number(won)} have" if won > 1 else "one has" if won else "none has"
    return [f"Of the {number(len(verdicts))} other columns, {some} a norm that beats {baseline} beyond chance."]


def column_sentence(contents: Contents, column: Column) -> str:
    """The result of one column."""
    say_loss = len({other.loss for other in contents.verdicts}) > 1
    return f"{circumstances(column, say_loss)}, {_result(contents.verdicts[column])}."


def _result(verdict: Verdict) -> str:
    there = {norm: found for norm, found in verdict.summaries.items() if found.number}
    if not there:
        lost = any(found.lost for found in verdict.summaries.values())
        return "every run that is finished has diverged" if lost else "no run is finished yet"
    if verdict.best is None:
        return "no norm has finished without losing a run"
    best, baseline = display_name(verdict.best), display_name(verdict.baseline)
    highest = f"{there[verdict.best].mean:.1f} %"
    if len(there) == 1:
        return f"{best} reaches {highest}, with nothing to compare it with yet"
    if not verdict.is_tested or (verdict.is_noise and verdict.pairs < _ENOUGH):
        return f"{_reached(there)}, but {_why_nothing_is_told(verdict)}"
    if verdict.is_noise:
        if max(found.mean for found in there.values()) - min(found.mean for found in there.values()) > _WIDE:
            widest = max(there, key=lambda norm: there[norm].deviation)
            return (
                f"{_reached(there)}, but runs of the same norm vary too much to distinguish them from {baseline} "
                f"({display_name(widest)} ± {there[widest].deviation:.1f}); more seeds may help"
            )
        low, high = (f"{end(found.mean for found in there.values()):.1f}" for end in (min, max))
        span = f"{low}–{high} %" if low != high else f"{high} %"
        if len(there) == 2:
            return f"both norms are within noise ({span})"
        return f"the other {number(len(there) - 1)} norms are within noise of {baseline} ({span})"
    company = _company(verdict)
    if verdict.beats_baseline:
        gap = verdict.to_baseline[verdict.best]
        return f"{best} is best: {highest}, {gap.mean:.1f} points over {baseline} ({probability(gap.p)}){company}"
    if verdict.best == verdict.baseline:
        return f"{best} is best: {highest}{company or ', better than all others beyond chance'}"
    if verdict.baseline in verdict.ahead:
        return f"{best} is the highest of the norms that have all their runs: {highest}{company}"
    behind = [display_name(norm) for norm in there if _is_behind(verdict, norm)]
    tail = f"; clearly behind: {listed(behind)}" if behind else ""
    middle = f"{there[verdict.baseline].mean:.1f} %"
    top = f"the highest, {best}, reaches {highest}"  # named last: it leads by chance
    return f"none is better than {baseline} ({middle}) beyond chance; {top}{_ahead(verdict)}{tail}"


def _reached(there: Mapping[str, Summary]) -> str:
    """The range of the means, where no more can be said."""
    low, *_, high = sorted(there, key=lambda norm: there[norm].mean)
    return f"accuracies go from {there[low].mean:.1f} to {there[high].mean:.1f} % ({display_name(high)})"


def _why_nothing_is_told(verdict: Verdict) -> str:
    if max(found.number for found in verdict.summaries.values()) < 2:
        return "one seed cannot distinguish an effect from chance"
    if verdict.is_tested:
        return f"{number(verdict.pairs)} runs of each are too few to distinguish an effect from chance"
    baseline = display_name(verdict.baseline)
    if verdict.pairs < 2:
        return f"too few runs are done to compare them with {baseline}"
    return f"every run differs from that of {baseline} by the same amount, which no test can judge"


def _company(verdict: Verdict) -> str:
    """The norms that are not distinguishable from the best."""
    level = [norm for norm in verdict.level_with_best if norm != verdict.baseline]
    untested = [display_name(norm) for norm in level if math.isnan(verdict.to_best[norm].p)]
    within = [display_name(norm) for norm in level if not math.isnan(verdict.to_best[norm].p)]
    told = f"; {listed(within)} {'is' if len(within) == 1 else 'are'} within noise of it" if within else ""
    return told + (f"; no test of it against {listed(untested)}" if untested else "") + _ahead(verdict)


def _ahead(verdict: Verdict) -> str:
    """The norms with a higher mean but fewer runs than the best."""
    found = [(norm, verdict.summaries[norm]) for norm in verdict.ahead]
    lucky = [f"{display_name(norm)} ({one.mean:.1f} % over {one.number})" for norm, one in found]
    return f"; higher, but over fewer runs: {listed(lucky)}" if lucky else ""


def _is_behind(verdict: Verdict, norm: str) -> bool:
    """Whether a norm is worse than the best, or than the baseline, beyond chance."""
    gaps = [found[norm] for found in (verdict.to_best, verdict.to_baseline) if norm in found]
    return any(gap.is_real and gap.mean < 0 for gap in gaps)


def _gain(verdict: Verdict) -> tuple[bool, float]:
    """A sort key: columns in which a norm beats the baseline, then those with any difference, by its size."""
    if verdict.beats_baseline and verdict.best is not None:
        return True, verdict.to_baseline[verdict.best].mean
    return False, max((abs(gap.mean) for gap in verdict.to_baseline.values() if gap.is_real), default=0.0)


def cautions(contents: Contents) -> list[Caution]:
    """Reasons to doubt the answer, the most serious first."""
    return [*_about_runs(contents), *_about_noise(contents), *_about_the_test(contents)]


def _about_runs(contents: Contents) -> list[Caution]:
    found = []
    missing, diverged, total = contents.unfinished(), contents.diverged(), len(contents.comparison.runs)
    if missing:
        norms = listed(list(dict.fromkeys(run["norm"] for run in missing)))
        found.append(
            Caution(
                "warning",
                f"{len(missing)} of {total} runs are not finished ({norms}). Start the same comparison again: it "
                "continues where it stopped.",
            )
        )
    if diverged:
        which = listed([f"{run['norm']} on {run['corruption']} with seed {run['seed']}" for run in diverged])
        found.append(
            Caution(
                "warning",
                f"{len(diverged)} of {total} runs diverged: their loss is not finite ({which}). A smaller "
                "learning rate may help.",
            )
        )
    return found


def _about_noise(contents: Contents) -> list[Caution]:
    found = []
    pairs = min(
        (
            gap.number
            for verdict in contents.verdicts.values()
            for norm, gap in verdict.to_baseline.items()
            if verdict.summaries[norm].number  # the others are reported as unfinished or diverged
        ),
        default=0,
    )
    if pairs < _ENOUGH and len(contents.norms) > 1:
        told = {0: "No pairs of runs", 1: "One pair of runs"}.get(pairs, f"Only {pairs} pairs of runs")
        found.append(
            Caution(
                "warning",
                f"{told} for each comparison with {display_name(contents.baseline)}: "
                + ("nothing can be tested. " if pairs < 2 else "only large differences can be told from chance. ")
                + f"{sentence(number(_ENOUGH))} seeds or more are better.",
            )
        )
    noisy = [
        contents.labels[column]
        for column, verdict in contents.verdicts.items()
        if verdict.is_noise and verdict.is_tested and verdict.pairs >= _ENOUGH
    ]
    if noisy:
        columns = (
            "all columns" if len(noisy) == len(contents.verdicts) > 1 else listed([f"“{label}”" for label in noisy])
        )
        found.append(
            Caution("warning", f"In {columns} the differences are within noise: do not choose a norm by them.")
        )
    return found


def _about_the_test(contents: Contents) -> list[Caution]:
    if not any(verdict.is_tested for verdict in contents.verdicts.values()):
        return []
    found = []
    if contents.comparison.settings().get("folds"):
        found.append(
            Caution(
                "note",
                "Folds share most of their training samples, so their results are more alike than those of "
                "independent data: intervals and p values are optimistic.",
            )
        )
    if len(contents.verdicts) > 1:
        found.append(
            Caution(
                "note",
                f"p values are corrected for the number of norms in each column, not for the {len(contents.verdicts)} "
                "columns: of 20 columns of pure noise, about one shows a difference.",
            )
        )
    totals = [run.figures[e].get("total", 0) for run in contents.finished for e in run.figures]
    if totals and min(totals):
        found.append(
            Caution(
                "note",
                "The tests say what another training on the same data would show. Other data may differ more: "
                f"one test sample of {min(totals)} is {100 / min(totals):.2g} points.",
            )
        )
    return found
