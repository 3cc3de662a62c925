"""Do weights grow under every normalization, and does weight decay stop it?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from .geometry import DECAY, LABELS, SOURCE, WITH, WITHOUT, base, curve, groups_of, norms_in, smaller
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import FAILS, OWN, UNDECIDED, Answer, Verdict, below, better

PARTS = (WITHOUT, WITH)
SHOWN = ("bn", "gn", "gn(groups=4)", "gn(groups=1)", "wn")  # in the paper's figure
NAMED = ("in", "cwn", "ws")  # growth claimed without a figure
TRAINED = 15.0  # per cent: ten classes by chance are 10
STILL = 1.0  # per cent: a weight that grows by less in the second half of the training has stopped growing
EPOCHS = 8  # of the laptop preset
IMAGES = 50_000  # of CIFAR-10, to train on


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by part."""
    norms = ("bn", groups_of(preset), "gn(groups=1)", "in", "wn", "cwn", "ws", "sn")
    one = replace(base(preset), norms=norms, probes=("invariant_lengths",))
    if preset == "laptop":
        one = replace(one, epochs=EPOCHS)
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
            *_lengths(results, part, norm),
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


def _lengths(results: Results, part: str, norm: str) -> list[str]:
    """The cells of the table about lengths."""
    if _best(results, part, norm) < TRAINED:
        return ["did not train", ""]
    first, last = (spread(_length(results, part, norm, epoch)) for epoch in (0, -1))
    rises = {pair: 100 * share for pair, share in _rises(results, part, norm).items()}
    return [f"{first} → {last}", spread(rises, 0)]


def _length(results: Results, part: str, norm: str, epoch: int = -1) -> dict[Pair, float]:
    return results.values(lambda record: curve(record, "invariant_lengths", "whole")[epoch], part, norm=norm)


def _best(results: Results, part: str, norm: str) -> float:
    return max(results.values(accuracy(), part, norm=norm).values(), default=0.0)


def _late(results: Results, part: str, norm: str) -> dict[Pair, float]:
    """Growth of the weight in the second half of the training, in per cent."""
    found = {}
    for record in results.of(part, norm=norm):
        values = curve(record, "invariant_lengths", "whole")
        found[record.pair] = 100 * (values[-1] / values[(len(values) - 1) // 2] - 1)
    return found


def _rises(results: Results, part: str, norm: str) -> dict[Pair, float]:
    """The percentage of epochs, after the first, in which the weight grew."""
    found = {}
    for record in results.of(part, norm=norm):
        values = curve(record, "invariant_lengths", "whole")
        steps = [later > earlier for earlier, later in pairwise(values)]
        found[record.pair] = sum(steps) / max(1, len(steps))
    return found


def _stopped(preset: str, late: Mapping[Pair, float]) -> Answer:
    """Whether a weight has stopped growing; after a short training, one that still grows is undecided."""
    found, recipe = below(late, STILL), plan(preset)[WITH]
    steps = recipe.epochs * math.ceil(recipe.data_options.get("train_size", IMAGES) / recipe.batch_size)
    needed = (1 - recipe.momentum) / (recipe.lr * recipe.weight_decay)  # for a factor of e by weight decay alone
    if found.verdict != FAILS or steps >= needed:
        return found
    return found._replace(verdict=UNDECIDED, why=f"too short, {steps:,} steps of {needed:,.0f}; {found.why}")


def _verdicts(results: Results) -> list[Verdict]:
    found = []
    for norm in norms_in(results):
        label, shown = LABELS[norm], norm in SHOWN
        first, last = (_length(results, WITHOUT, norm, epoch) for epoch in (0, -1))
        decayed, late = _length(results, WITH, norm), _late(results, WITH, norm)
        said = "Fig. 3: it does" if shown else "Section 2.5, no figure" if norm in NAMED else OWN
        grows = Verdict(
            f"{label}: the weight grows without weight decay",
            said,
            f"{spread(first)} → {spread(last)}",
            *better(last, first),
        )
        shorter = Verdict(
            f"{label}: weight decay keeps it shorter",
            "Fig. 3: it does" if shown else OWN,
            f"{spread(decayed)} with, {spread(last)} without",
            *better(last, decayed),
        )
        stops = Verdict(
            f"{label}: with weight decay it stops growing (second half of the training: less than {STILL:g} %)",
            "Section 3.2, Fig. 3: stable early, or shorter again",
            f"{spread(late, 1)} %",
            *_stopped(results.preset, late),
        )
        parts = [part for part in PARTS if results.of(part, norm=norm)]
        best = max((_best(results, part, norm) for part in parts), default=0.0)
        broken = Answer(UNDECIDED, f"it did not train: accuracy at most {best:.1f} %")
        for one in (grows, shorter, stops) if shown else (grows, shorter):
            found.append(one if best >= TRAINED else Verdict(one.claim, one.published, "", *broken))
    return found


_DIFFERS = f"""\
{smaller(EPOCHS)}
- LayerNorm of images is GroupNorm with one group; GroupNorm has 4 groups here, 32 in the `paper` preset.
- The paper derives growth for every row. Rows before LayerNorm and GroupNorm and under SpectralNorm are not scale
  invariant one by one, only the whole matrix or the rows of a group together, see the page on invariance. So lengths
  are of the whole weight here. The paper does not name SpectralNorm among the norms under which weights grow.
- Under WeightNorm the weight is the direction V, whose length does not matter; under the other norms of weights the raw
  one.
- Weight standardization is used alone here, with no norm after it. Its rows have length √n whatever the weights, so
  values grow from layer to layer, and it does not train; centered WeightNorm has the same direction at length 1, and
  does.
- The paper says of the four methods of Figure 3 that weight decay stops the growth. The criterion for that was chosen
  when the results were known. The laptop preset makes about 630 steps, and weight decay alone would take about 4000 to
  shorten a weight by a factor of e: growth may stop after this run has ended. So a weight that still grows decides
  nothing in a run that is shorter than that. The paper's figure has 120 000 steps.
- The first figure is after the first epoch: it does not show the effect of that epoch."""

STUDY = Study(
    name="geometry-growth",
    line="Lengths of weights under eight normalizations, with and without weight decay",
    source=f"{SOURCE}, Figure 3, Sections 2.5 and 3.2",
    minutes={"laptop": 4},
    plan=plan,
    read=read,
    curves=("invariant_lengths",),
)
