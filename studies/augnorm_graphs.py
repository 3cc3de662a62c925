"""AugNorm on graphs: a GCN on three sets of molecules and proteins, in ten folds."""

from __future__ import annotations

from .augnorm_graphs_claims import (
    COMPARABLE,
    FASTER,
    MOVED,
    OUTPERFORMS,
    POOR,
    verdicts,
)
from .augnorm_graphs_newton import BROKEN, MISSED, ended_in_nan
from .augnorm_graphs_plan import (
    NEWTON_NORMS,
    NORMS,
    PROTOCOLS,
    PUBLISHED,
    PUBLISHED_TEST,
    REGULAR,
    SETS,
    SMALL_BATCHES,
    STEPS,
    WHOLE_BATCHES,
    part_of,
    plan,
)
from .augnorm_graphs_regular import SEEN, regular_table
from .graph_metrics import METRICS
from .page import Block, Chart, Line, Page, Table, mean_line, spread
from .results import Results, accuracy
from .study import Study

_CURVES = {"tested_on_training": "after each epoch", "train_accuracy": "during the epoch"}
_APART = (SMALL_BATCHES, WHOLE_BATCHES, STEPS, REGULAR)  # their tables are not of folds


def read(results: Results) -> Page:
    """Tables, curves and verdicts."""
    parts = list(dict.fromkeys(record.part for record in results.records))
    ordered = [part_of(data, protocol) for protocol in PROTOCOLS for data in SETS]
    folded = [part for part in [*ordered, *parts] if part in parts and part not in _APART]
    blocks: list[Block] = [_folded(results, part) for part in dict.fromkeys(folded)]
    blocks += [make(results) for part, make in ((SMALL_BATCHES, _newton), (REGULAR, regular_table)) if part in parts]
    blocks.append(Chart("training", "Training accuracy", "epoch", "accuracy, %", _panels(results)))
    return Page(_DIFFERS, verdicts(results), blocks)


def _panels(results: Results) -> dict[str, list[Line]]:
    """The curves of Figure 2, under the protocol of the claims."""
    found = {}
    for data in SETS:
        for curve, words in _CURVES.items():
            curves = {
                norm: [one.curve[curve] for one in results.of(part_of(data), norm=norm) if curve in one.curve]
                for norm in NORMS
            }
            if all(curves.values()):
                found[f"{SETS[data]}, {words}"] = [mean_line(NORMS[norm], of, 100) for norm, of in curves.items()]
    return found


def _folded(results: Results, part: str) -> Table:
    """The metrics of one part, with the published figures."""
    data, _, protocol = part.partition(", ")
    published = [table.get(data, {}) if protocol in PROTOCOLS else {} for table in (PUBLISHED, PUBLISHED_TEST)]
    rows = []
    for norm in _norms(results, part):
        records = results.of(part, norm=norm)
        figures = [spread(metric(records)) for metric in METRICS.values()]
        end = spread(results.values(accuracy(), part, norm=norm))
        rows.append([f"`{norm}`", *[table.get(norm, "") for table in published], *figures, end])
    heads = ["norm", "Table 2, validation", "Table 1, test", *METRICS, "last epoch"]
    keep = [i for i in range(len(heads)) if i == 0 or any(row[i] for row in rows)]
    return Table(
        f"{SETS.get(data, data.upper())}, {PROTOCOLS.get(protocol, protocol)}",
        [heads[i] for i in keep],
        [[row[i] for i in keep] for row in rows],
        _counts(results, part),
    )


def _newton(results: Results) -> Table:
    """How many trainings end in NaN, by solver and φ."""
    rows = []
    for norm, (solver, phi) in NEWTON_NORMS.items():
        cells = []
        for part in (SMALL_BATCHES, WHOLE_BATCHES):
            records = results.of(part, norm=norm)
            cells.append(f"{sum(map(ended_in_nan, records))} of {len(records)}" if records else "")
        if any(cells):
            rows.append([f"`{norm}`", solver, phi, *cells])
    note = "Trainings on the ten folds of MUTAG. Only an unbounded φ can reach 1, below which there is no center."
    return Table("Trainings that end in NaN", ["norm", "solver", "φ", "batches of 8", "batches of 128"], rows, note)


def _norms(results: Results, part: str) -> list[str]:
    return list(dict.fromkeys(record.choices["norm"] for record in results.of(part)))


def _counts(results: Results, part: str) -> str:
    records = results.of(part)
    seeds, folds = (len({record.choices[name] for record in records}) for name in ("seed", "fold"))
    counted = f"{seeds} {'split' if seeds == 1 else 'splits'} into {folds} folds"
    if len(records) < seeds * folds * len(_norms(results, part)):
        counted += ", not all of them trained with every norm"
    return f"{counted}; mean ± standard deviation over all folds, as in the paper."


_DIFFERS = f"""\
- The protocol of the claims, *ten folds*: all that the paper states, which is 5 graph convolutions of 64 features, each
  with a norm, rate 0.01, dropout 0.05, sum pooling, 400 epochs, batches of 128 graphs and ten folds. It calls the rest
  identical to GraphNorm, so we take it from GraphNorm's code: Adam, a rate that falls linearly to 0, dropout on the
  scores, stratified folds, batches of 128 for every norm, training accuracy in evaluation mode after each epoch. That
  code has dropout 0.5 and 4 convolutions where the paper says 0.05 and five.
- Two protocols were run before this one: *constant rate* lacks the falling rate, and *GraphNorm's code* has that code's
  4 convolutions and dropout 0.5. They are shown without verdicts. This one was chosen when their results were known,
  and the choice favours norms over the batch: with a constant rate their running statistics lag behind, and on MUTAG
  they are far below GraphNorm at the best epoch of the mean.
- The paper gives a batch size for BatchNorm and AugNorm, and none for GraphNorm; it has one split into ten folds.
- The `laptop` preset has MUTAG alone, 100 epochs instead of 400, and no trainings that may end in NaN: φ would not get
  far. With batches of 8, which are eleven times as many steps per epoch, the `paper` preset has 100 epochs.
- The paper says that its figures are the "best averaged validation accuracy". That is the epoch where the mean over
  the folds is best, the metric of the claims. Its figures look more like those of the best epoch of each fold. Both
  choose an epoch by the samples they test on; the mean of the last quarter and the last epoch with recomputed
  statistics do not. These three are further figures.
- The unit of a test is a split into ten folds. The paper speaks of all sets at once, so the
  difference is the mean over the sets, each with its own number of splits. All splits are of the same graphs: a verdict
  is about these three sets and no others.
- Smallest effects of interest, from the paper's tables: AugNorm above BatchNorm by {OUTPERFORMS:g} points, half of the
  published 1.28; comparable to GraphNorm, not more than {COMPARABLE:g} points below, since the paper calls 1.28
  outperforming; φ=1.5 above a learned φ by {POOR:g} points, half of the published 1.13. Figure 2 has no numbers:
  {FASTER:g} point of training accuracy over all epochs.
- "Comparable and even better" than GraphNorm is judged once. That AugNorm generalizes better than GraphNorm, which the
  paper concludes from lower training and higher test accuracy, is no claim of its own here.
- Table 2 has an empty row named BatchNorm, then two rows named GraphNorm: we take the first, with 89.3 for MUTAG, for
  BatchNorm. Table 1 has no figure of BatchNorm at all, none of AugNorm at φ=1.5 on MUTAG and none of a learned φ on
  PTC. The paper does not say how it was measured, so it is shown beside ours without a test.
- The paper reports the best of φ = 1.25, 1.5 and 1.75 on single splits, and calls it AugNorm1.5. We did not search;
  the others are in a table.
- Figure 2 does not say which set it shows: MUTAG. Accuracy after each epoch is that of GraphNorm's code, with running
  statistics, which lag behind; during the epoch it is that of the batches, with dropout.
- `diffphi` learns φ between 1.2 and 3 with our solver, which always converges; the paper's takes eight Newton steps and
  has no bounds. So the claim that a learned φ is worse is about the learning of φ, not about those steps.
- `newton_closed` is the paper's solver with the signs and the derivative of φ corrected, which are wrong as printed.
  It takes eight steps from the mean and has the closed form of the derivatives. `newton` records the steps by
  autograd instead, which the paper calls too memory intensive. Each has a control with φ=1.5. The smallest difference
  of interest is {BROKEN:g} % of the trainings, one fold of ten.
- "Around 8 iterations" are judged on the inputs of all norms after 100 epochs, in float64, with the sign corrected.
  They come close enough where the distance to the center is below float16's precision times the standard deviation of
  the channel; they are enough if that is so in all but {MISSED:g} % of the channels.
- The paper suspects that a learned φ gets low, and does not say where its own started. Ours starts at 1.5; the smallest
  fall of interest is {MOVED:g}.
- Regular graphs: section 2 says of GraphNorm that removing the whole mean loses all features of such graphs. Data,
  network and the initial fractions are ours, and so are the questions about a learned fraction. The {SEEN:g} %, where
  chance has 33.3 %, were chosen when results were known.
- Our PTC has 344 graphs with 25.6 nodes on average; the paper counts 25.5."""

STUDY = Study(
    name="augnorm-graphs",
    line="GCN on MUTAG, PTC and PROTEINS in ten folds: BatchNorm, GraphNorm, AugNorm with φ=1.5 and learned",
    source="AugNorm on graphs, Tables 1 and 2, Figure 2, sections 4.1 and 7.2",
    minutes={"laptop": 6, "paper": 330},
    plan=plan,
    read=read,
    curves=("accuracy", "train_accuracy", "tested_on_training", "exponents"),
    ends=("phi", "eight_steps"),
)
