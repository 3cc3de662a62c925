"""The answer in a sentence or two, and what one must know before believing it."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..results import Column, Comparison
from ..statistics import Verdict
from .contents import Contents, gather
from .phrases import called, circumstances, listed, number, probability, sentence

_ENOUGH = 5  # seeds: with fewer, only very large differences can be told from chance


class Caution(NamedTuple):
    """What one must know when reading the report; a note if it holds of every such comparison."""

    severity: str
    text: str


def answer(comparison: Comparison, baseline: str | None = None) -> str:
    """What came out, in one or two sentences that need no knowledge of this library.

    Args:
        comparison: with at least one run.
        baseline: as in ``write``.
    """
    return short_answer(gather(comparison, baseline))


def short_answer(contents: Contents) -> str:
    """The first column, and the one in which most is gained over the baseline."""
    first, *others = contents.verdicts
    if not contents.finished:
        return "No run is finished yet."
    told = [first, *([max(others, key=lambda column: _gain(contents.verdicts[column]))] if others else [])]
    return " ".join(column_sentence(contents, column) for column in told)


def column_sentence(contents: Contents, column: Column) -> str:
    """What one column says."""
    say_loss = len({other.loss for other in contents.verdicts}) > 1
    return f"{circumstances(column, say_loss)}, {_said(contents.verdicts[column])}."


def _said(verdict: Verdict) -> str:
    there = {norm: found for norm, found in verdict.summaries.items() if found.number}
    if not there or verdict.best is None:
        return "no norm has finished without losing a run" if there else "no run is finished yet"
    best, baseline = called(verdict.best), called(verdict.baseline)
    highest = f"{there[verdict.best].mean:.1f} %"
    if len(there) == 1:
        return f"{best} reaches {highest}, with nothing to compare it to yet"
    means = [found.mean for found in there.values()]
    if max(found.number for found in there.values()) < 2:
        return (
            f"accuracies go from {min(means):.1f} to {max(means):.1f} % ({best}), but one seed cannot tell an effect "
            "from chance"
        )
    if verdict.is_noise:
        all_of_them = "both norms" if len(there) == 2 else f"all {number(len(there))} norms"
        return f"{all_of_them} are within noise ({min(means):.1f}–{max(means):.1f} %)"
    level = [called(norm) for norm in verdict.level_with_best if norm != verdict.baseline]
    company = f"; {listed(level)} {'is' if len(level) == 1 else 'are'} within noise of it" if level else ""
    if verdict.ahead:
        lucky = [f"{called(norm)} ({there[norm].mean:.1f} %)" for norm in verdict.ahead]
        company += f"; higher, but only in the runs that did not diverge: {listed(lucky)}"
    if verdict.beats_baseline:
        gap = verdict.to_baseline[verdict.best]
        return f"{best} is best: {highest}, {gap.mean:.1f} points over {baseline} ({probability(gap.p)}){company}"
    if verdict.best == verdict.baseline:
        return f"{best} is best: {highest}{company or ', better than all others beyond chance'}"
    behind = [called(norm) for norm in there if _is_behind(verdict, norm)]
    tail = f"; clearly behind: {listed(behind)}" if behind else ""
    middle = f"{there[verdict.baseline].mean:.1f} %" if verdict.baseline in there else "no result"
    return f"{best} comes out highest, {highest}, but within noise of {baseline} ({middle}){tail}"


def _is_behind(verdict: Verdict, norm: str) -> bool:
    """Whether a norm is worse than the best, or than the baseline, beyond chance."""
    gaps = [found[norm] for found in (verdict.to_best, verdict.to_baseline) if norm in found]
    return any(gap.is_real and gap.mean < 0 for gap in gaps)


def _gain(verdict: Verdict) -> tuple[bool, float]:
    """First columns with a winner over the baseline, then those where anything differs; most points first."""
    if verdict.beats_baseline and verdict.best is not None:
        return True, verdict.to_baseline[verdict.best].mean
    return False, max((abs(gap.mean) for gap in verdict.to_baseline.values() if gap.is_real), default=0.0)


def cautions(contents: Contents) -> list[Caution]:
    """What stands against the answer, the gravest first."""
    return [*_about_runs(contents), *_about_noise(contents), *_about_the_test(contents)]


def _about_runs(contents: Contents) -> list[Caution]:
    found = []
    missing, diverged, total = contents.unfinished(), contents.diverged(), len(contents.comparison.runs)
    if missing:
        norms = listed(list(dict.fromkeys(run["norm"] for run in missing)))
        found.append(
            Caution(
                "warning",
                f"{len(missing)} of {total} runs are not finished ({norms}). Start the same comparison again: it goes "
                "on where it stopped.",
            )
        )
    if diverged:
        which = listed([f"{run['norm']} on {run['corruption']} with seed {run['seed']}" for run in diverged])
        found.append(
            Caution(
                "warning",
                f"{len(diverged)} of {total} runs diverged, their loss is no longer a number: {which}. A smaller "
                "learning rate may help.",
            )
        )
    return found


def _about_noise(contents: Contents) -> list[Caution]:
    found = []
    pairs = min(
        (gap.number for verdict in contents.verdicts.values() for gap in verdict.to_baseline.values()), default=0
    )
    if pairs < _ENOUGH and len(contents.norms) > 1:
        told = {0: "No pairs of runs", 1: "One pair of runs"}.get(pairs, f"Only {pairs} pairs of runs")
        found.append(
            Caution(
                "warning",
                f"{told} for each comparison with {called(contents.baseline)}: "
                + ("nothing can be tested. " if pairs < 2 else "only large differences can be told from chance. ")
                + f"{sentence(number(_ENOUGH))} seeds or more are better.",
            )
        )
    noisy = [contents.labels[c] for c, v in contents.verdicts.items() if v.is_noise and _has_tests(v)]
    if noisy:
        columns = (
            "all columns" if len(noisy) == len(contents.verdicts) > 1 else listed([f"“{label}”" for label in noisy])
        )
        found.append(
            Caution("warning", f"In {columns} the differences are inside the noise: do not choose a norm by them.")
        )
    return found


def _has_tests(verdict: Verdict) -> bool:
    return any(not math.isnan(gap.p) for gap in verdict.to_baseline.values())


def _about_the_test(contents: Contents) -> list[Caution]:
    if not any(map(_has_tests, contents.verdicts.values())):
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
