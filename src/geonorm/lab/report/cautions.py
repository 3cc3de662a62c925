"""Reasons to doubt the answer."""

from __future__ import annotations

from typing import NamedTuple

from .contents import Contents
from .effect import CLOSE
from .labels import display_name, listed, number, sentence

_ENOUGH = 5  # seeds: with fewer, only very large differences can be distinguished from chance


class Caution(NamedTuple):
    """Something to know when reading the report: a warning, or a note if it applies to every such comparison."""

    severity: str
    text: str


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
    noisy = {
        contents.labels[column]: max(abs(gap.mean) for gap in verdict.to_baseline.values() if gap.number)
        for column, verdict in contents.verdicts.items()
        if verdict.is_noise and verdict.is_tested and verdict.pairs >= _ENOUGH
    }
    for labels, said in (
        ([label for label, gap in noisy.items() if gap <= CLOSE], "are within noise: do not choose a norm by them."),
        (
            [label for label, gap in noisy.items() if gap > CLOSE],
            "are large but could be chance, because runs of the same norm vary as much: use more seeds.",
        ),
    ):
        if labels:
            columns = (
                "all columns" if len(labels) == len(contents.verdicts) > 1 else listed([f"“{one}”" for one in labels])
            )
            found.append(Caution("warning", f"In {columns} the differences {said}"))
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
