"""Do weights grow under every normalization, and does weight decay stop it?"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ..recipe import Recipe
from .geometry import DECAY, LABELS, SMALLER, SOURCE, base, curve, groups_of, norms_in
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import UNDECIDED, Verdict, better

WITHOUT, WITH = "without weight decay", "with weight decay"
PARTS = (WITHOUT, WITH)
SHOWN = ("bn", "gn", "gn(groups=4)", "gn(groups=1)", "wn")  # in the paper's figure; the others it claims

TRAINED = 15.0  # per cent: ten classes by chance are 10


def plan(preset: str) -> dict[str, Recipe]:
    """The trainings, by part."""
    norms = ("bn", groups_of(preset), "gn(groups=1)", "in", "wn", "cwn", "ws", "sn")
    one = replace(base(preset), norms=norms, probes=("invariant_lengths",))
    if preset == "laptop":
        one = replace(one, epochs=8)
    return {WITHOUT: one, WITH: replace(one, weight_decay=DECAY)}


def read(results: Results) -> Page:
    """Curves of lengths and effective rates, a table, and verdicts."""
    norms = norms_in(results)
    rate = plan(results.preset)[WITHOUT].lr
    lengths = {LABELS[norm]: [_line(results, part, norm) for part in PARTS] for norm in norms}
    rates = {LABELS[norm]: [_line(results, part, norm, rate) for part in PARTS] for norm in norms}
    rows = [
        [
            LABELS[norm],
            part,
            spread(results.values(accuracy(), part, norm=norm), 1),
            f"{spread(_length(results, part, norm, 0))} → {spread(_length(results, part, norm))}",
            spread({pair: 100 * share for pair, share in _rises(results, part, norm).items()}, 0),
        ]
        for norm in norms
        for part in PARTS
    ]
    heads = ["norm", "training", "accuracy, %", "‖W‖ after the first epoch → the last", "epochs in which it grew, %"]
    blocks: list[Block] = [
        Chart("lengths", "Length of the first weight in the first residual block", "epoch", "‖W‖", lengths),
        Table("Lengths", heads, rows, "Mean ± deviation over seeds."),
        Chart("rates", "Effective learning rate η/‖w‖² of the same weight", "epoch", "η/‖w‖²", rates, log=True),
    ]
    return Page(_DIFFERS, _verdicts(results), blocks)


def _line(results: Results, part: str, norm: str, rate: float | None = None) -> Line:
    """The length of the whole weight; with a learning rate, the effective rate of its parts."""
    curves = [curve(one, "invariant_lengths", "part" if rate else "whole") for one in results.of(part, norm=norm)]
    return mean_line(part, [[rate / value**2 for value in values] for values in curves] if rate else curves)


def _length(results: Results, part: str, norm: str, epoch: int = -1) -> dict[Pair, float]:
    return results.values(lambda record: curve(record, "invariant_lengths", "whole")[epoch], part, norm=norm)


def _rises(results: Results, part: str, norm: str) -> dict[Pair, float]:
    """In which share of the epochs after the first the weight has grown."""
    found = {}
    for record in results.of(part, norm=norm):
        values = curve(record, "invariant_lengths", "whole")
        steps = [later > earlier for earlier, later in pairwise(values)]
        found[record.pair] = sum(steps) / max(1, len(steps))
    return found


def _verdicts(results: Results) -> list[Verdict]:
    found = []
    for norm in norms_in(results):
        first, last = (_length(results, WITHOUT, norm, epoch) for epoch in (0, -1))
        decayed = _length(results, WITH, norm)
        shown = "Fig. 3: it does" if norm in SHOWN else "claimed, not shown"
        best = max(results.values(accuracy(), WITHOUT, norm=norm).values(), default=0.0)
        if best < TRAINED:
            why = f"it did not train: accuracy at most {best:.1f} %"
            found.append(Verdict(f"{LABELS[norm]}: the weight grows without weight decay", shown, "", UNDECIDED, why))
            continue
        claim = f"{LABELS[norm]}: the weight grows without weight decay"
        found.append(Verdict(claim, shown, f"{spread(first)} → {spread(last)}", *better(last, first)))
        claim = f"{LABELS[norm]}: weight decay keeps it shorter"
        ours = f"{spread(decayed)} with, {spread(last)} without"
        found.append(Verdict(claim, shown, ours, *better(last, decayed)))
    return found


_DIFFERS = f"""\
{SMALLER}
- LayerNorm of images is GroupNorm with one group; GroupNorm has 4 groups here, 32 at the paper's scale.
- The paper derives growth for every row. Rows before LayerNorm and GroupNorm and under SpectralNorm are not scale
  invariant one by one, only the whole matrix or the rows of a group together, see the page on invariance. So lengths
  are of the whole weight here.
- Under WeightNorm the weight is the direction V, whose length does not matter; under the other norms of weights the raw
  one.
- Weight standardization is alone here, with no norm behind it. Its rows have length √n whatever the weights, so values
  grow from layer to layer, and it does not train; centered WeightNorm is the same direction at length 1, and does.
- The first figure is after the first epoch: it does not show what that epoch did."""

STUDY = Study(
    name="geometry-growth",
    line="Lengths of weights under eight normalizations, with and without weight decay",
    source=f"{SOURCE}, Figure 3",
    minutes={"laptop": 6},
    plan=plan,
    read=read,
    curves=("invariant_lengths",),
)
