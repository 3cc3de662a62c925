"""What AugNorm on images claims about subpopulation shift, one claim for each sentence, with its published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from geonorm.lab.statistics import summarize

from .page import spread
from .results import Pair, Record, Results, accuracy
from .shift_published import (
    AVERAGE,
    BATCH,
    CHI,
    CHI_DORO,
    CVAR,
    CVAR_DORO,
    ERM,
    FIXED,
    LEARNED,
    LOSSES,
    NORMS,
    WORST,
    on_set,
)
from .verdicts import OWN, UNTESTED, Answer, Verdict, above, better, explored, no_worse

# Smallest effects of interest: half of each published difference, computed below. Where the paper calls two norms level
# there is none to halve:
COMPARABLE = 0.8  # points; half of what φ=1.5 loses under ERM, so that the learned φ must do better than that
NO_LOSS = 1.8  # points; the standard deviation of BatchNorm's average over seeds, mean of the five losses
START, TOWARDS = 1.5, 0.25  # φ has moved towards 2 if it came from 1.5 at least half of the way

Figure = Callable[[Record], float]


class Claim(NamedTuple):
    """That one norm is better than another, in the mean over some losses.

    Attributes:
        text: the sentence.
        one, other: the norms.
        losses: the mean is over these.
        is_worst: about the worst group; else about all samples.
        margin: for a claim that one is about as good; NaN for one that it is better.
        is_main: also judged on stand-ins for CelebA, not only shown.
    """

    text: str
    one: str
    other: str
    losses: tuple[str, ...]
    is_worst: bool = True
    margin: float = 0.0
    is_main: bool = False

    def published(self, norm: str) -> float:
        """The mean of the published figures."""
        table, column = WORST if self.is_worst else AVERAGE, list(NORMS).index(norm)
        return fmean(float(table[loss][column].split()[0]) for loss in self.losses)

    @property
    def least(self) -> float:
        """Half of the published difference."""
        return round((self.published(self.one) - self.published(self.other)) / 2, 2)

    def answer(self, one: Mapping[Pair, float], other: Mapping[Pair, float]) -> Answer:
        """Whether it holds."""
        return no_worse(one, other, self.margin) if self.margin else better(one, other, self.least)


_STRONG = (CHI, CVAR, CVAR_DORO)  # the losses for which the paper claims a gain
CLAIMS = (
    Claim(
        "under χ², CVaR and CVaR-DORO φ=1.5 has a better worst group than BatchNorm",
        FIXED,
        BATCH,
        _STRONG,
        is_main=True,
    ),
    Claim(
        "under χ², CVaR and CVaR-DORO the learned φ has a better worst group than BatchNorm",
        LEARNED,
        BATCH,
        _STRONG,
        is_main=True,
    ),
    Claim("under χ² and χ²-DORO the learned φ has a better worst group than φ=1.5", LEARNED, FIXED, (CHI, CHI_DORO)),
    Claim(
        "under CVaR and CVaR-DORO φ=1.5 has a better worst group than the learned φ", FIXED, LEARNED, (CVAR, CVAR_DORO)
    ),
    Claim("under ERM BatchNorm has a better worst group than φ=1.5", BATCH, FIXED, (ERM,), is_main=True),
    Claim(
        "under ERM the worst group of the learned φ is comparable to BatchNorm's",
        LEARNED,
        BATCH,
        (ERM,),
        margin=COMPARABLE,
    ),
    Claim(
        "under ERM, χ² and CVaR φ=1.5 has a better average than BatchNorm",
        FIXED,
        BATCH,
        (ERM, CHI, CVAR),
        is_worst=False,
    ),
    Claim(
        "under χ²-DORO and CVaR-DORO φ=1.5 has a worse average than BatchNorm",
        BATCH,
        FIXED,
        (CHI_DORO, CVAR_DORO),
        is_worst=False,
    ),
    Claim(
        "over all five losses φ=1.5 sacrifices no significant average accuracy",
        FIXED,
        BATCH,
        tuple(LOSSES),
        is_worst=False,
        margin=NO_LOSS,
        is_main=True,
    ),
)
MOVES = "under ERM the learned φ moves towards 2"


def worst(record: Record) -> float:
    """Test accuracy of the worst group in %, in the epoch that validation samples choose."""
    found = chosen_epoch(record)
    return 100 * found["test"] if found else accuracy(figure="worst_group")(record)


def average(record: Record) -> float:
    """Test accuracy over all samples in %, in the same epoch."""
    found = chosen_epoch(record)
    return 100 * found["test_all"] if found else accuracy()(record)


def chosen_epoch(record: Record) -> dict[str, float]:
    """The figures of the first epoch with the best worst group of validation samples; empty where there are none."""
    epochs: list[dict[str, float]] = record.curve.get("worst_groups", [])
    return max(epochs, key=lambda one: one["valid"]) if epochs and "valid" in epochs[0] else {}


def mean_phi(record: Record) -> float:
    """The learned φ after the last epoch, mean over layers."""
    return summarize(record.curve["phi"][-1].values()).mean


def judged(
    results: Results, name: str, sets: Sequence[str], *, is_paper: bool, is_judged: bool = True
) -> list[Verdict]:
    """The verdicts on some sets, in the mean over them.

    Args:
        results: of the study.
        name: of the sets.
        sets: their parts of the study.
        is_paper: they are those of the paper; else its claims become questions of ours.
        is_judged: whether there are verdicts at all, or only figures.
    """
    found = []
    for claim in CLAIMS:
        figure = worst if claim.is_worst else average
        one, other = (_over(results, sets, figure, norm, claim.losses) for norm in (claim.one, claim.other))
        if one and other:
            answer = claim.answer(one, other)
            if not is_paper and not (is_judged and claim.is_main):
                answer = explored(answer)
            said = _published(claim) if is_paper else OWN
            found.append(Verdict(f"{name}: {claim.text}", said, f"{spread(one)} against {spread(other)}", *answer))
    moved = _over(results, sets, mean_phi, LEARNED, (ERM,))
    if moved:
        answer = above(moved, START, TOWARDS)
        said, answer = ("in words", answer) if is_paper else (OWN, answer if is_judged else explored(answer))
        found.append(Verdict(f"{name}: {MOVES}", said, spread(moved, 3), *answer))
    return found


def untested(name: str, why: str) -> list[Verdict]:
    """The paper's claims, where its data are out of reach."""
    figures = [(claim.text, _published(claim)) for claim in CLAIMS] + [(MOVES, "in words")]
    return [Verdict(f"{name}: {text}", said, "", UNTESTED, why) for text, said in figures]


def _published(claim: Claim) -> str:
    return " against ".join(f"{claim.published(norm):.2f}" for norm in (claim.one, claim.other))


def _over(results: Results, sets: Sequence[str], figure: Figure, norm: str, losses: Sequence[str]) -> dict[Pair, float]:
    """The mean over sets and losses of each seed that has them all."""
    columns = [results.values(figure, part, loss=on_set(part, loss), norm=norm) for part in sets for loss in losses]
    seeds = [pair for pair in columns[0] if all(pair in column for column in columns)] if columns else []
    return {pair: fmean(column[pair] for column in columns) for pair in seeds}
