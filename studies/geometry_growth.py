"""Do weights grow under every normalization, and does weight decay stop it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from .geometry import (
    DECAY,
    LABELS,
    LAPTOP,
    LONG,
    SOURCE,
    WITH,
    WITHOUT,
    base,
    curve,
    groups_of,
    norms_in,
    over,
    smaller,
    steps,
)
from .models.standardized import STANDARDIZED
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .recipe import StudyRecipe
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import FAILS, OWN, UNDECIDED, Answer, Verdict, above, below, explored

PARTS = (WITHOUT, WITH)
SHOWN = ("bn", "gn", "gn(groups=4)", "gn(groups=1)", "wn")  # in the paper's figure, with and without weight decay
UNNAMED = "sn"  # the paper does not name it among the norms under which weights grow
SHORT = 8  # epochs of the laptop preset without weight decay
TRAINED = 15.0  # per cent: ten classes by chance are 10
# Per cent. The axis of Figure 3 for BatchNorm ends at 25 and has a tick every 2.5: a hundredth of the length is a tenth
# of the distance between two ticks, and cannot be seen. So a weight that grows by less is still.
STILL = 1.0


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by part."""
    groups = groups_of(preset)
    shown = ("bn", groups, "gn(groups=1)", "wn")
    others = ("in", "cwn", groups.replace("gn", STANDARDIZED), UNNAMED)
    one = replace(base(preset), norms=shown + others, probes=("invariant_lengths",))
    if preset == "laptop":
        one = replace(one, epochs=SHORT, seeds=tuple(range(8)))
    decayed = replace(one, norms=shown, weight_decay=DECAY)
    if preset == "laptop":
        decayed = replace(decayed, epochs=LONG, seeds=one.seeds[:5])
    return {WITHOUT: one, WITH: decayed}


def read(results: Results) -> Page:
    """Curves of lengths and effective rates, a table, and verdicts."""
    norms = norms_in(results)
    rate = plan(results.preset)[WITHOUT].lr
    lengths = {LABELS[norm]: [_line(results, part, norm) for part in _parts(results, norm)] for norm in norms}
    rates = {LABELS[norm]: [_line(results, part, norm, rate) for part in _parts(results, norm)] for norm in norms}
    rows = [
        [
            LABELS[norm],
            part,
            spread(results.values(accuracy(), part, norm=norm), 1),
            *_lengths(results, part, norm),
        ]
        for norm in norms
        for part in _parts(results, norm)
    ]
    heads = ["norm", "training", "accuracy, %", "‖W‖ after the first epoch → the last", "epochs in which it grew, %"]
    blocks: list[Block] = [
        Chart("lengths", "Length of the first weight in the first residual block", "epoch", "‖W‖", lengths),
        Table("Lengths", heads, rows, "Mean ± deviation over seeds."),
        Chart("rates", "Effective learning rate η/‖w‖² of the same weight", "epoch", "η/‖w‖²", rates, log=True),
    ]
    return Page(_DIFFERS, _verdicts(results), blocks)


def _parts(results: Results, norm: str) -> list[str]:
    return [part for part in PARTS if results.of(part, norm=norm)]


def _line(results: Results, part: str, norm: str, rate: float | None = None) -> Line:
    """The length of the whole weight; with a learning rate, the effective rate of its parts."""
    curves = [curve(one, "invariant_lengths", "part" if rate else "whole") for one in results.of(part, norm=norm)]
    return mean_line(part, [[rate / value**2 for value in values] for values in curves] if rate else curves)


def _whole(record: Record) -> list[float]:
    return curve(record, "invariant_lengths", "whole")


def _lengths(results: Results, part: str, norm: str) -> list[str]:
    """The cells of the table about lengths."""
    if not _has_trained(results, part, norm):
        return ["did not train", ""]
    first = spread(results.values(lambda record: _whole(record)[0], part, norm=norm))
    last = spread(results.values(lambda record: _whole(record)[-1], part, norm=norm))
    return [f"{first} → {last}", spread(results.values(_rises, part, norm=norm), 0)]


def _has_trained(results: Results, part: str, norm: str) -> bool:
    return max(results.values(accuracy(), part, norm=norm).values(), default=0.0) >= TRAINED


def _has_trained_everywhere(results: Results, norm: str) -> bool:
    """In all its parts, and with as many seeds as the others: a mean over norms has only the seeds of all of them."""
    parts = {part: len(results.of(part, norm=norm)) for part in _parts(results, norm)}
    most = {part: max(len(results.of(part, norm=other)) for other in norms_in(results)) for part in parts}
    return parts == most and all(_has_trained(results, part, norm) for part in parts)


def _rises(record: Record) -> float:
    """The percentage of epochs, after the first, in which the weight grew."""
    grew = [later > earlier for earlier, later in pairwise(_whole(record))]
    return 100 * sum(grew) / max(1, len(grew))


def _growth(record: Record) -> float:
    """Growth of the weight after the first epoch, in per cent."""
    values = _whole(record)
    return 100 * (values[-1] / values[0] - 1)


def _late(record: Record) -> float:
    """Growth of the weight in the second half of the training, in per cent."""
    values = _whole(record)
    return 100 * (values[-1] / values[(len(values) - 1) // 2] - 1)


def _stopped(preset: str, late: Mapping[Pair, float]) -> Answer:
    """Whether a weight has stopped growing; after a short training, one that still grows is undecided."""
    found, recipe = below(late, STILL), plan(preset)[WITH]
    needed = _steps_to_shrink(recipe, recipe.weight_decay)
    if found.verdict != FAILS or steps(recipe) >= needed:
        return found
    return found._replace(verdict=UNDECIDED, why=f"too short, {steps(recipe):,} steps of {needed:,.0f}; {found.why}")


def _steps_to_shrink(recipe: StudyRecipe, decay: float) -> float:
    """In how many steps weight decay alone shortens a weight by a factor of e."""
    return (1 - recipe.momentum) / (recipe.lr * decay)


def _verdicts(results: Results) -> list[Verdict]:
    trained = [norm for norm in norms_in(results) if _has_trained_everywhere(results, norm)]
    named = [norm for norm in trained if norm != UNNAMED]
    shown = [norm for norm in trained if norm in SHOWN]

    def values(figure: Callable[[Record], float], part: str, norms: Sequence[str]) -> dict[Pair, float]:
        return over([results.values(figure, part, norm=norm) for norm in norms])

    growth = values(_growth, WITHOUT, named)
    late = values(_late, WITH, shown)
    claim = f"weights grow without weight decay, by more than {STILL:g} % (mean over norms)"
    found = [
        Verdict(
            claim, "Fig. 3, Section 2.5: they do", _percent(growth, f", {len(named)} norms"), *above(growth, STILL)
        ),
    ]
    for norm in named:
        growth = values(_growth, WITHOUT, [norm])
        said = "Fig. 3: it does" if norm in SHOWN else "Section 2.5, no figure"
        answer = explored(above(growth, STILL))
        found.append(Verdict(f"{LABELS[norm]}: the weight grows", said, _percent(growth), *answer))
    half = f"second half of the training: less than {STILL:g} %"
    claim = f"with weight decay they stop growing (mean over norms; {half})"
    found.append(Verdict(claim, _STOPS, _percent(late, f", {len(shown)} norms"), *_stopped(results.preset, late)))
    for norm in shown:
        late = values(_late, WITH, [norm])
        answer = explored(_stopped(results.preset, late))
        found.append(Verdict(f"{LABELS[norm]}: it stops growing", _STOPS, _percent(late), *answer))
    if UNNAMED in trained:
        growth = values(_growth, WITHOUT, [UNNAMED])
        claim = f"{LABELS[UNNAMED]}: the weight grows without weight decay, by more than {STILL:g} %"
        found.append(Verdict(claim, OWN, _percent(growth), *above(growth, STILL)))
    return found


def _percent(values: Mapping[Pair, float], more: str = "") -> str:
    return f"{spread(values, 1)} %{more}" if values else ""


_STOPS = "Section 3.2, Fig. 3: stable early, or shorter again"
_DIFFERS = f"""\
{smaller(LONG)}
- Those are the trainings with weight decay. Growth without it shows earlier: the others have {SHORT} epochs,
  {steps(replace(LAPTOP, epochs=SHORT))} steps.
- LayerNorm of images is GroupNorm with one group; GroupNorm has 4 groups here, 32 in the `paper` preset.
- The paper makes one claim about all norms, so it is tested on their mean; rows for single norms have no verdict. With
  weight decay the paper shows four norms, and only these are trained with it.
- The paper derives growth for every row. Rows before LayerNorm and GroupNorm and under SpectralNorm are not scale
  invariant one by one, only the whole matrix or the rows of a group together, see the page on invariance. So lengths
  are of the whole weight here. The paper does not name SpectralNorm among the norms under which weights grow.
- Under WeightNorm the weight is the direction V, whose length does not matter; under the other norms of weights the raw
  one.
- Weight standardization is used with GroupNorm after it, as its authors use it. Alone, it does not train here: its rows
  have length √n whatever the weights, so values grow from layer to layer.
- A weight has stopped growing if it grows by less than {STILL:g} % in the second half of the training: in the paper's
  figure less could not be seen. Weight decay alone shortens a weight by a factor of e in
  {_steps_to_shrink(LAPTOP, DECAY):,.0f} steps, and the training with it has {steps(replace(LAPTOP, epochs=LONG)):,}.
  In a shorter one, a weight that still grows decides nothing. The paper's figure has 120,000 steps, at a rate that is
  fifty times smaller.
- Growth is counted from the end of the first epoch. The bound of {STILL:g} % is older than the trainings with weight
  decay; those without it were known when it became the bound for them as well."""

STUDY = Study(
    name="geometry-growth",
    line="Lengths of weights under eight normalizations, and whether weight decay stops their growth",
    source=f"{SOURCE}, Figure 3, Sections 2.5 and 3.2",
    minutes={"laptop": 15},
    plan=plan,
    read=read,
    curves=("invariant_lengths",),
)
