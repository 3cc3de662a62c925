"""Claims on the solver of AugNorm on graphs: NaN in small batches, none in large ones, and eight steps are enough."""

from __future__ import annotations

from collections.abc import Sequence

from .augnorm_graphs_plan import SMALL_BATCHES, STEPS, WHOLE_BATCHES
from .page import spread
from .results import Pair, Record, Results
from .verdicts import Verdict, below, better

BROKEN = 10.0  # per cent of trainings that end in NaN: one fold of ten
MISSED = 5.0  # per cent of channels: eight steps are enough if they are for 19 channels of 20


def of_newton(results: Results) -> list[Verdict]:
    """The verdicts on these claims."""
    found = []
    learned, fixed = (
        _broken(results.of(SMALL_BATCHES, norm=norm)) for norm in ("newton_closed", "newton_closed_fixed")
    )
    both = [pair for pair in learned if pair in fixed]
    if both:
        lows = [low for low in map(_lowest, results.of(SMALL_BATCHES, norm="newton_closed")) if low is not None]
        ours = f"{_count(learned)} with φ learned, {_count(fixed)} with φ fixed; {_reach(lows)}"
        answer = better({pair: learned[pair] for pair in both}, {pair: fixed[pair] for pair in both}, BROKEN)
        claim = "MUTAG, batches of 8: learning φ without bounds makes trainings end in NaN"
        found.append(Verdict(claim, "§7.2, without figures", ours, *answer))
    whole = _broken(results.of(WHOLE_BATCHES, norm="newton_closed"))
    if whole:
        claim = "MUTAG, batches of 128: no training with a φ learned without bounds ends in NaN"
        answer = below(whole, BROKEN)
        found.append(Verdict(claim, "§7.2, of all reported results", f"{_count(whole)}", *answer))
    missed = {
        record.pair: 100 * float(record.curve["eight_steps"][-1]["missed"])
        for record in results.of(STEPS)
        if record.curve.get("eight_steps")
    }
    if missed:
        ours = f"{spread(missed)} % of the channels of a trained network end further away"
        claim = (
            f"MUTAG, φ=1.5: eight Newton steps come as close as float16 can tell, in all but {MISSED:g} % of channels"
        )
        found.append(Verdict(claim, "§4.1: “around 8 iterations”", ours, *below(missed, MISSED)))
    return found


def ended_in_nan(record: Record) -> bool:
    """Whether a training ended in NaN: its scores are, so that no training sample is classified correctly."""
    return float(record.curve["train_accuracy"][-1]) == 0


def _broken(records: list[Record]) -> dict[Pair, float]:
    """100 for every training that ended in NaN, else 0; each counts by itself, so folds are numbered as seeds."""
    return {
        (100 * record.choices["seed"] + (record.choices["fold"] or 0), None): 100.0 * ended_in_nan(record)
        for record in records
    }


def _count(broken: dict[Pair, float]) -> str:
    return f"{sum(value > 0 for value in broken.values())} of {len(broken)}"


def _lowest(record: Record) -> float | None:
    """The lowest φ of a training after any epoch in which all were finite."""
    known = [one["lowest"] for one in record.curve.get("exponents", []) if one is not None]
    return min(known, default=None)


def _reach(lows: Sequence[float]) -> str:
    if not lows:
        return "φ was NaN after the first epoch"
    return f"φ was at most 1 in {sum(low <= 1 for low in lows)} of {len(lows)}, lowest {min(lows):.2f}"
