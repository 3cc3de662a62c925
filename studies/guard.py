"""Common parts of the studies of the guard: norms, faults, and how claims about several fractions are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from geonorm.lab.statistics import summarize

from .page import Line, Table, spread
from .results import Pair
from .verdicts import FAILS, HOLDS, OWN, UNDECIDED, Answer, Verdict, level

BATCH, LAYER, ROBUST, GUARD = "bn", "ln", "robustbn", "guardbn"
NORMS = {BATCH: "BatchNorm", LAYER: "LayerNorm", ROBUST: "robust center and spread", GUARD: "guard"}
CLEAN = "clean"
SEEDS = tuple(range(10))
SOURCE = "new; the guard is not from a paper"
MARGIN = 2.0  # points within which accuracy counts as kept
Values = Mapping[Pair, float]


class Fault(NamedTuple):
    """A way in which samples are broken: its name, the corruption, and its strength."""

    label: str
    kind: str
    strength: float

    def at(self, share: float) -> str:
        """The corruption of a fraction of the samples."""
        return f"{self.kind}(share={share:g}, strength={self.strength:g})"


def per_cent(share: float) -> str:
    """A fraction as a percentage."""
    return f"{100 * share:g} %"


def mean_over(columns: Sequence[Values]) -> dict[Pair, float]:
    """The mean over several columns, of each seed that has them all."""
    first = columns[0] if columns else {}
    pairs = [pair for pair in first if all(pair in column for column in columns)]
    return {pair: sum(column[pair] for column in columns) / len(columns) for pair in pairs}


def kept_at_all(before: Values, after: Mapping[str, Values], margin: float = MARGIN) -> tuple[Answer, str]:
    """Whether a figure stays level in every one of several cases; with the figures of the case that decides."""
    answers = {case: level(values, before, margin) for case, values in after.items()}
    lowest = min(after, key=lambda case: summarize(after[case].values()).mean)
    for word in (FAILS, UNDECIDED):
        cases = [case for case, answer in answers.items() if answer.verdict == word]
        if cases:
            lowest = lowest if lowest in cases else cases[0]
            break
    else:
        word = HOLDS
    why = f"{'lowest at' if word == HOLDS else 'at'} {lowest}: " if len(after) > 1 else ""
    return Answer(word, why + answers[lowest].why), f"{spread(after[lowest])} against {spread(before)} clean"


def same_to_the_digit(claim: str, one: Values, other: Values) -> Verdict:
    """Whether two norms have the same figure in every pair. One different pair is enough, so no test is needed."""
    pairs = [pair for pair in one if pair in other]
    alike = sum(one[pair] == other[pair] for pair in pairs)
    ours = f"{spread(one)} against {spread(other)}"
    return Verdict(
        claim, OWN, ours, HOLDS if alike == len(pairs) else FAILS, f"the same in {alike} of {len(pairs)} pairs"
    )


def gaps(one: Values, other: Values) -> dict[Pair, float]:
    """One minus the other, pair by pair."""
    return {pair: one[pair] - other[pair] for pair in one if pair in other}


def expectations(what: str, cases: Mapping[str, tuple[float, Values]]) -> Table:
    """Expected and measured figures of the guard; a figure at least as high as expected is reached."""
    rows = []
    for case, (wanted, values) in cases.items():
        if values:
            reached = summarize(values.values()).mean >= wanted - 0.05  # expectations have one digit
            rows.append([case, f"{wanted:.1f}", spread(values), "yes" if reached else "no"])
    note = f"{what}, mean ± standard deviation over seeds, and what was expected before the runs."
    return Table("As good as expected?", ["case", "expected", "ours", "reached"], rows, note)


def line(label: str, values: Mapping[float, Values]) -> Line:
    """A curve with a band of one standard deviation, over the keys of ``values``."""
    found = {place: summarize(own.values()) for place, own in values.items() if own}
    bands = [[one.mean + sign * one.deviation for one in found.values()] for sign in (-1, 1)]
    return Line(label, list(found), [one.mean for one in found.values()], *bands)
