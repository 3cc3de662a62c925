"""Can channels with similar (γ, β) be merged?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .geometry import DECAY, LEAST, SOURCE, WITH, WITHOUT, base, over, parts_in, smaller
from .page import Block, Chart, Line, Page, Table, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import EXPLORATORY, OWN, Verdict, below, better

RULES = {
    "pairs": "the other of a pair close in (γ, β)",
    "random_pairs": "another at random",
    "outputs": "the other of a pair with close outputs",
    "gamma": "0, smallest |γ| first",
    "random": "0, at random",
}
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
SIMILAR = 0.1  # |correlation| by which similar outputs exceed others: a hundredth of the variance in common


def _how(rule: str, share: float) -> str:
    return f"pruned(rule={rule}, share={share})"


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by part; pruning is one of their evaluations."""
    tests = ("clean", *[_how(rule, share) for rule in RULES for share in SHARES])
    one = replace(base(preset), evaluations=tests)
    if preset == "laptop":
        one = replace(one, seeds=tuple(range(24)))
    return {WITHOUT: one, WITH: replace(one, weight_decay=DECAY)}


def read(results: Results) -> Page:
    """Accuracy against the fraction of channels left out, by rule, and verdicts."""
    parts = parts_in(results)
    panels = {part: [_line(results, part, rule) for rule in RULES] for part in parts}
    blocks: list[Block] = [
        Chart("shares", "Accuracy without some channels", "share of channels", "accuracy, %", panels)
    ]
    for part in parts:
        rows = [
            [f"`{rule}`", words, *[spread(_values(results, part, rule, share), 1) for share in SHARES]]
            for rule, words in RULES.items()
        ]
        whole = spread(results.values(accuracy(), part), 1)
        note = f"With all channels: {whole}. Mean ± deviation over seeds; nothing is trained afterwards."
        heads = ["rule", "replaced by", *[f"{share:.0%}" for share in SHARES]]
        blocks.append(Table(f"Accuracy, %, {part}", heads, rows, note))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _values(results: Results, part: str, rule: str, share: float) -> dict[Pair, float]:
    return results.values(accuracy(_how(rule, share)), part)


def _line(results: Results, part: str, rule: str) -> Line:
    found = [list(results.values(accuracy(), part).values())]
    found += [list(_values(results, part, rule, share).values()) for share in SHARES]
    return Line(rule, [0.0, *SHARES], [sum(values) / len(values) for values in found])


def _overall(results: Results, part: str, rule: str) -> dict[Pair, float]:
    """Mean accuracy over all fractions."""
    return over([_values(results, part, rule, share) for share in SHARES])


def _similarity(results: Results, part: str, of: str) -> dict[Pair, float]:
    """Similarity of the outputs of channels; it does not depend on the fraction."""
    return results.values(lambda record: record.figures[_how("pairs", SHARES[0])]["similarity"][of], part)


def _verdicts(results: Results) -> list[Verdict]:
    """One per claim on the mean over both trainings; for those of the paper, then the figures of each."""
    parts = parts_in(results)
    found = _judged(results, parts, "")
    for part in parts:
        of_paper = [one for one in _judged(results, [part], f", {part}") if not one.is_own]
        found += [one._replace(verdict=EXPLORATORY, p=math.nan) for one in of_paper]
    return found


def _judged(results: Results, parts: list[str], where: str) -> list[Verdict]:
    def mean(figure: Callable[[str], dict[Pair, float]]) -> dict[Pair, float]:
        return over([figure(part) for part in parts])

    near = mean(lambda part: _similarity(results, part, "nearest"))
    others = mean(lambda part: _similarity(results, part, "random"))
    ours = f"|correlation| {spread(near)} against {spread(others)} of random pairs"
    claim = f"channels close in (γ, β) have similar outputs{where}"
    found = [Verdict(claim, "Section 2.2, not tested", ours, *better(near, others, SIMILAR))]
    whole = mean(lambda part: results.values(accuracy(), part))
    merged = mean(lambda part: _values(results, part, "pairs", SHARES[0]))
    lost = {pair: whole[pair] - merged[pair] for pair in whole}
    share = f"{100 * SHARES[0]:g} % of channels"
    claim = f"merging {share} with ones close in (γ, β) maintains accuracy (within {LEAST:g} points){where}"
    ours = f"{spread(whole, 1)} → {spread(merged, 1)}"
    found.append(Verdict(claim, "Section 2.2, not tested", ours, *below(lost, LEAST)))
    for one, other, words, said in (
        ("gamma", "random", "dropping the smallest |γ| costs less than dropping any", "Section 1.2, after others"),
        ("pairs", "random_pairs", "merging pairs close in (γ, β) costs less than merging random pairs", OWN),
        ("pairs", "gamma", "merging pairs close in (γ, β) costs less than dropping the smallest |γ|", OWN),
        ("pairs", "outputs", "merging pairs close in (γ, β) costs less than pairs with close outputs", OWN),
    ):
        left, right = (over([_overall(results, part, rule) for part in parts]) for rule in (one, other))
        ours = f"{spread(left, 1)} against {spread(right, 1)}"
        found.append(Verdict(f"{words}{where}", said, ours, *better(left, right, LEAST)))
    return found


_DIFFERS = f"""\
{smaller()}
- The paper proposes to remove channels similar in (γ, β) and has no experiment: there is no figure to compare with.
  Here the output of the one that stays is used for both. Nothing is trained afterwards.
- Layers have 8 to 32 channels here and 64 to 2048 in ResNet-101: there are fewer channels that could be spared, and
  fewer that are close to one another.
- Claims are tested on the mean over the trainings with and without weight decay. Rules are compared by their mean
  accuracy over the five fractions. That was chosen when the results were known: at single fractions some of the
  differences between rules are clear and some are not. Whether accuracy is maintained is tested at the smallest
  fraction, where that is easiest.
- That channels with small |γ| can be dropped is the paper's reading of Liu et al. (2017), who train with a penalty on
  |γ| and fine-tune afterwards. Here there is neither. A dropped channel gives 0, so its β is lost as well.
- Equal (γ, β) put two outputs onto the same sphere, not in the same place on it: hence the controls with random pairs
  and with pairs whose outputs are close.
- The smallest effects of interest are {LEAST:g} points of accuracy, half of the smallest gain that the paper reads
  off its tables, and {SIMILAR:g} of correlation. They were chosen after the first ten seeds, from the paper alone. The
  other seeds were added because two comparisons were undecided."""

STUDY = Study(
    name="geometry-prune",
    line="Merging channels that are close in (γ, β) against |γ| alone, close outputs and chance",
    source=f"{SOURCE}, Sections 2.2 and 4, a proposal",
    minutes={"laptop": 5},
    plan=plan,
    read=read,
    curves=(),
)
