"""AugNorm under subpopulation shift: five losses, and the accuracy of the worst group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from geonorm.lab.statistics import difference, summarize

from .page import Block, Page, Table, spread
from .recipe import StudyRecipe
from .results import Pair, Record, Results, accuracy
from .study import Study
from .verdicts import Verdict, better, level

BATCH, FIXED, LEARNED = "bn", "augbn(phi=1.5)", "diffphi"
NORMS = {BATCH: "BatchNorm", FIXED: "AugNorm, φ=1.5", LEARNED: "AugNorm, φ learned"}
ERM, CHI, CHI_DORO = "erm", "chi_square(alpha=0.25)", "chi_square_doro(alpha=0.25, eps=0.01, trim=floor)"
CVAR, CVAR_DORO = "cvar(alpha=0.1)", "cvar_doro(alpha=0.2, eps=0.005, trim=floor)"
LOSSES = {ERM: "ERM", CHI: "χ²", CHI_DORO: "χ²-DORO", CVAR: "CVaR", CVAR_DORO: "CVaR-DORO"}
SETS = {
    "celeba": "CelebA",
    "minority 5 %": "Two Gaussian classes, a minority of 5 %",
    "minority 1 %": "Two Gaussian classes, a minority of 1 %",
    "compas": "COMPAS",
    "adult": "Adult",
}
WORST = {  # published accuracy of the worst group, by loss and in the order of NORMS
    ERM: ("55.44 ± 4.03", "53.83 ± 6.47", "55.00 ± 1.99"),
    CHI: ("65.59 ± 5.96", "67.77 ± 3.41", "68.49 ± 4.68"),
    CHI_DORO: ("67.70 ± 3.41", "67.74 ± 1.88", "67.76 ± 3.16"),
    CVAR: ("66.80 ± 3.03", "70.48 ± 4.15", "69.34 ± 3.77"),
    CVAR_DORO: ("66.28 ± 3.78", "71.72 ± 2.72", "66.28 ± 8.09"),
}
AVERAGE = {  # published "average test accuracies across subpopulations"
    ERM: ("94.38 ± 1.63", "95.01 ± 0.37", "95.12 ± 0.08"),
    CHI: ("83.27 ± 2.56", "83.40 ± 2.74", "83.41 ± 2.08"),
    CHI_DORO: ("82.85 ± 2.55", "80.65 ± 2.79", "81.52 ± 3.34"),
    CVAR: ("83.70 ± 1.56", "84.07 ± 2.14", "82.95 ± 1.74"),
    CVAR_DORO: ("94.01 ± 0.58", "92.81 ± 0.65", "93.73 ± 1.00"),
}
# One verdict for all sets of a kind. The Gaussian ones were designed so that the minority can be learned.
KINDS = {
    "CelebA": ("celeba",),
    "Gaussian classes": ("minority 5 %", "minority 1 %"),
    "COMPAS and Adult": ("compas", "adult"),
}
MARGIN = 2.0  # points within which averages are level: the published ones spread by 0.4 to 2.8

SHIFT = StudyRecipe(norms=tuple(NORMS), losses=tuple(LOSSES), seeds=tuple(range(10)), batch_size=400)
FACES = replace(
    SHIFT,
    data="celeba",
    data_options={"size": 224},
    model="resnet18",
    model_options={"stem": "imagenet"},
    epochs=30,
    lr=0.001,
    weight_decay=0.001,
    augment=("flip",),
)
SMALL = replace(SHIFT, lr=0.01)


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings of a preset, by set."""
    if preset == "paper":
        return {"celeba": FACES}
    gaussian = {"train_size": 10000, "signal": 2.0}
    parts = {
        f"minority {100 * share:g} %": replace(
            SMALL, data="subpopulations", data_options={**gaussian, "minority": share}, epochs=10
        )
        for share in (0.05, 0.01)
    }
    parts["compas"] = replace(SMALL, data="compas", model_options={"hidden": 10, "layers": 1}, epochs=20)
    parts["adult"] = replace(SMALL, data="adult", data_options={"groups": "sex_and_label"}, epochs=3)
    return parts


def read(results: Results) -> Page:
    """Tables of worst-group and average accuracy, and the verdicts for each kind of sets."""
    sets = [part for part in SETS if results.of(part)]
    blocks: list[Block] = []
    for part in sets:
        for word, figure, published in (("worst group", "worst_group", WORST), ("average", "accuracy", AVERAGE)):
            theirs = published if part == "celeba" else {}
            blocks.append(_table(results, part, word, figure, theirs))
    blocks += [_losses(results, sets), _exponents(results, sets)]
    kinds = {name: [part for part in parts if part in sets] for name, parts in KINDS.items()}
    verdicts = [verdict for name, parts in kinds.items() if parts for verdict in _verdicts(results, name, parts)]
    return Page(_DIFFERS, verdicts, blocks)


def _table(results: Results, part: str, word: str, figure: str, published: Mapping[str, Sequence[str]]) -> Table:
    heads = ["loss", *[f"{name}, published" for name in NORMS.values() if published], *NORMS.values()]
    rows = []
    for loss, name in LOSSES.items():
        of = {norm: results.values(accuracy(figure=figure), part, loss=loss, norm=norm) for norm in NORMS}
        gap = difference(of[FIXED], of[BATCH])
        interval = f"{gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]" if gap.number > 1 else ""
        rows.append([name, *published.get(loss, ()), *map(spread, of.values()), interval])
    note = "Test accuracy in %, mean ± standard deviation over seeds; the difference with its 95 % interval."
    return Table(f"{SETS[part]}: {word}", [*heads, "φ=1.5 − BatchNorm"], rows, note)


def _losses(results: Results, sets: Sequence[str]) -> Table:
    """The final training losses, which show whether the robust losses learned anything at all."""
    rows = []
    for loss, name in LOSSES.items():
        of = [results.of(part, loss=loss, norm=BATCH) for part in sets]
        rows.append([name, *[spread([float(record.curve["loss"][-1]) for record in records], 3) for records in of]])
    note = "Of the last epoch, with BatchNorm. A network that always predicts ½ has ln 2 = 0.693 under every loss."
    return Table("Training loss", ["loss", *[SETS[part] for part in sets]], rows, note)


def _exponents(results: Results, sets: Sequence[str]) -> Table:
    """The final learned φ; without a verdict, since a few hundred steps hardly move it."""
    rows = []
    for loss, name in LOSSES.items():
        cells = [spread([_phi(record) for record in results.of(part, loss=loss, norm=LEARNED)], 4) for part in sets]
        rows.append([name, *cells])
    heads = ["loss", *[SETS[part] for part in sets]]
    note = "Mean over layers after the last epoch; it starts at 1.5. The paper saw it move towards 2 under ERM."
    return Table("Learned φ", heads, rows, note)


def _phi(record: Record) -> float:
    return summarize(record.curve["phi"][-1].values()).mean


def _over_sets(
    results: Results, sets: Sequence[str], figure: Callable[[Record], float], norm: str, losses: Sequence[str]
) -> dict[Pair, float]:
    """The mean over sets and losses of each seed that has them all."""
    columns = [results.values(figure, part, loss=loss, norm=norm) for part in sets for loss in losses]
    seeds = [pair for pair in columns[0] if all(pair in column for column in columns)]
    return {pair: sum(column[pair] for column in columns) / len(columns) for pair in seeds}


def _verdicts(results: Results, kind: str, sets: Sequence[str]) -> list[Verdict]:
    found = []
    worst = accuracy(figure="worst_group")
    order = list(NORMS)
    for loss, claims in {
        ERM: ((BATCH, FIXED), (BATCH, LEARNED)),
        CHI: ((FIXED, BATCH), (LEARNED, BATCH)),
        CHI_DORO: ((FIXED, BATCH), (LEARNED, BATCH)),
        CVAR: ((FIXED, BATCH), (LEARNED, BATCH)),
        CVAR_DORO: ((FIXED, BATCH),),
    }.items():
        for one, other in claims:
            if LEARNED in (one, other) and kind != "CelebA":
                continue  # after so few steps φ is still 1.5
            of = {norm: _over_sets(results, sets, worst, norm, [loss]) for norm in (one, other)}
            if not of[one] or not of[other]:
                continue
            theirs = "CelebA: " + " against ".join(WORST[loss][order.index(norm)] for norm in (one, other))
            ours = f"{spread(of[one])} against {spread(of[other])}"
            claim = f"{kind}, {LOSSES[loss]}, worst group: {NORMS[one]} is better than {NORMS[other]}"
            found.append(Verdict(claim, theirs, ours, *better(of[one], of[other])))
    of = {norm: _over_sets(results, sets, accuracy(), norm, list(LOSSES)) for norm in (FIXED, BATCH)}
    if of[FIXED] and of[BATCH]:
        claim = f"{kind}, all losses, average accuracy: AugNorm at φ=1.5 stays within {MARGIN:g} points of BatchNorm"
        theirs = "CelebA: 87.19 against 87.64, the means over the five losses"
        ours = f"{spread(of[FIXED])} against {spread(of[BATCH])}"
        found.append(Verdict(claim, theirs, ours, *level(of[FIXED], of[BATCH], MARGIN)))
    return found


_DIFFERS = f"""\
- CelebA needs a GPU: it is the `paper` preset. ResNet-18, batches of 400, SGD with rate 0.001, momentum 0.9, weight
  decay 0.001 and seeds 0 to 9 are the paper's. Random first weights, images of 224×224 pixels, mirrored, 30 epochs and
  the official splits are not in its text but in DORO's code, which it uses. That code also crops at random, does not
  shuffle, and takes the epoch with the best worst group of the validation samples; ours does not crop, shuffles, and
  counts the last epoch. The paper also speaks of 70 % of the instances, sampled for training.
- Published figures are of CelebA on every row; the paper has none of the other sets.
- It calls its averages "average test accuracies across subpopulations". Ours are over all test samples, as in DORO's
  code.
- For χ²-DORO the paper's figures are level. It is tested in the same way as the other robust losses; this was added
  when results were known.
- The `laptop` preset has four small sets. Two Gaussian classes in 11 dimensions, the last of which seems to tell the
  class and is wrong for a minority of 5 % or 1 % (10,000 samples, signal 2; the ten others allow 97.7 %). COMPAS as
  DORO prepares it, with its network of one hidden layer of 10 units, to which the norm is added; groups by race and by
  sex. Adult with the four groups of sex and label. Networks of two hidden layers of 64 units but for COMPAS.
- Losses, their parameters, batches of 400 and ten seeds are the paper's; the rate is 0.01. DORO drops whole samples,
  int(ε·400), as in its code.
- The seeds draw initial weights and batches; samples are the same for all. Verdicts take the mean over the sets of a
  kind for every seed, so they apply to these sets and no others.
- On COMPAS and Adult the robust losses end above ln 2, the loss of a network that predicts ½ for everything: nothing
  useful was learned, probably because their labels are too noisy for these α. Accuracies vary widely from seed to seed
  there, and a verdict on these two says little. So they are judged separately from the Gaussian classes; that was
  decided when the results were known.
- On the small sets the learned φ stays within 0.001 of its start in so few steps: the learned φ is still 1.5.
  So there is a verdict on it for CelebA only.
- The margin of {MARGIN:g} points for averages is ours; the published ones of these two norms spread by 0.4 to 2.8
  points over seeds."""

STUDY = Study(
    name="augnorm-shift",
    line="Worst-group and average accuracy under subpopulation shift: five losses with BatchNorm and AugNorm",
    source="AugNorm on images, Tables 2 and 4",
    minutes={"laptop": 3},
    plan=plan,
    read=read,
    curves=(),
    ends=("loss", "phi"),
)
