"""Accuracy under noise and attack, with and without weight decay; and does the size of weights matter?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from .geometry import (
    DECAY,
    LABELS,
    LEAST,
    SOURCE,
    WITH,
    WITHOUT,
    base,
    groups_of,
    norms_in,
    over,
    smaller,
    steps,
)
from .page import Block, Chart, Line, Page, Table, spread
from .recipe import StudyRecipe
from .results import Pair, Results, accuracy
from .study import Study
from .verdicts import OWN, Verdict, above, better, explored

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
TABLES = {"cifar10": "Table 1", "cifar100": "Table 2"}
# Clean, noise and BIM accuracy in per cent, without and with weight decay; "4327" in print is read as 0.4327.
PUBLISHED = {
    "cifar10": {
        "BatchNorm": ((96.87, 81.25, 53.80), (93.75, 78.12, 60.00)),
        "GroupNorm": ((96.87, 90.62, 57.93), (93.75, 84.37, 58.15)),
        "LayerNorm": ((87.11, 84.37, 52.53), (96.87, 80.02, 53.33)),
        "WeightNorm": ((86.79, 70.60, 50.31), (90.62, 71.87, 46.87)),
    },
    "cifar100": {
        "BatchNorm": ((68.75, 45.96, 13.97), (65.63, 49.53, 15.58)),
        "GroupNorm": ((62.57, 40.98, 23.66), (60.63, 43.27, 28.13)),
        "LayerNorm": ((63.58, 39.83, 23.54), (62.79, 42.78, 25.31)),
        "WeightNorm": ((61.47, 34.76, 16.47), (60.72, 38.74, 19.65)),
    },
}
NONE = "no norm"
CONTROLLED = "cifar10"  # the set on which weights are rescaled, and on which a network has no norm
NOISE, STRONG_NOISE = "noise(std=0.0625)", "noise(std=0.25)"
FACTORS = (0.1, 10.0)
HUNDRED = replace(  # the laptop preset on CIFAR-100; seed 0 was used to see how long a training takes
    base("laptop"),
    data="cifar100_subset",
    data_options={"side": 16},
    epochs=26,
    seeds=tuple(range(1, 9)),
)
# Weight decay raises the mean of Table 2 under noise and BIM from 29.9 to 32.9 %, by a tenth. Networks that are less
# accurate have fewer points to gain, so gains are relative, and the smallest one of interest is half of that.
GAIN = 5.0  # per cent of the accuracy without weight decay
LOSS = 31.0  # per cent of the clean accuracy: half of the smallest loss under BIM in Table 2, 62 % with GroupNorm


def _bim(preset: str, how: str = "") -> str:
    """2/255 in images from 0 to 1, or 0.03 after they are standardized: as in the code of Galloway et al. (2019)."""
    steps = "step=0.00026, steps=40" if preset == "paper" else "step=0.00156, steps=10, samples=1000"
    return f"bim(eps=0.0078, {steps}{how})"


def _controls(preset: str) -> dict[float, str]:
    """The attack on the network with its scale-invariant weights times a factor, and statistics recomputed."""
    return {1.0: _bim(preset, ", recalibrated=true")} | {
        factor: _bim(preset, f", rescaled={factor:g}") for factor in FACTORS
    }


def plan(preset: str) -> dict[str, StudyRecipe]:
    """The trainings, by part: set, and weight decay or not."""
    one = base(preset)
    ten = replace(one, seeds=tuple(range(8))) if preset == "laptop" else one
    hundred = HUNDRED if preset == "laptop" else replace(one, data="cifar100")
    tests = ("clean", NOISE, STRONG_NOISE, _bim(preset))
    norms = ("bn", groups_of(preset), "gn(groups=1)", "wn")
    ten = replace(ten, norms=(*norms, "none"), evaluations=(*tests, *_controls(preset).values()))
    hundred = replace(hundred, norms=norms, evaluations=tests)
    return {
        f"{data}, {part}": replace(recipe, weight_decay=decay)
        for data, recipe in ((CONTROLLED, ten), ("cifar100", hundred))
        for part, decay in ((WITHOUT, 0.0), (WITH, DECAY))
    }


def read(results: Results) -> Page:
    """Tables like the published ones, the control, and verdicts."""
    blocks: list[Block] = []
    for data, name in SETS.items():
        norms = _norms(results, data)
        if not norms:
            continue
        rows = []
        for norm in norms:
            for i, part in enumerate((WITHOUT, WITH)):
                theirs = PUBLISHED[data].get(_label(norm))
                own = [_values(results, f"{data}, {part}", norm, how) for how in _tests(results)]
                rows.append([_label(norm), part, *[spread(one, 1) for one in own], *_theirs(theirs and theirs[i])])
        heads = ["norm", "training", "clean", "noise 1/16", "noise 1/4", "BIM", "clean, published", "noise", "BIM"]
        blocks.append(Table(f"{name}: accuracy, %", heads, rows, "Mean ± deviation over seeds."))
        if data != CONTROLLED:
            continue
        panels = {
            part: [_control_line(results, f"{data}, {part}", norm) for norm in norms if norm != "none"]
            for part in (WITHOUT, WITH)
        }
        title = f"{name}: BIM on the same network with other sizes of weights"
        blocks.append(Chart(f"{data}-control", title, "factor", "accuracy under BIM, %", panels, log_x=True))
    return Page(_DIFFERS, _verdicts(results), blocks)


def _norms(results: Results, data: str) -> list[str]:
    return [norm for norm in norms_in(results) if results.of(f"{data}, {WITHOUT}", norm=norm)]


def _label(norm: str) -> str:
    return NONE if norm == "none" else LABELS[norm]


def _tests(results: Results) -> list[str]:
    return ["clean", NOISE, STRONG_NOISE, _bim(results.preset)]


def _theirs(figures: tuple[float, float, float] | None) -> list[str]:
    return ["", "", ""] if figures is None else [f"{value:.2f}" for value in figures]


def _values(results: Results, part: str, norm: str, how: str) -> dict[Pair, float]:
    return results.values(accuracy(how), part, norm=norm)


def _control_line(results: Results, part: str, norm: str) -> Line:
    found = {
        factor: list(_values(results, part, norm, how).values())
        for factor, how in sorted(_controls(results.preset).items())
    }
    kept = {factor: sum(values) / len(values) for factor, values in found.items() if values}
    return Line(_label(norm), list(kept), list(kept.values()))


def _verdicts(results: Results) -> list[Verdict]:
    normed = [norm for norm in plan(results.preset)[f"{CONTROLLED}, {WITHOUT}"].norms if norm != "none"]
    attack = _bim(results.preset)
    both = (NOISE, attack)
    hundred, ten = "cifar100", CONTROLLED
    own, bare = (_mean(results, f"{ten}, {WITHOUT}", norms, (attack,)) for norms in (normed, ["none"]))
    claim = f"{SETS[ten]}: the accuracy under BIM is lower than without any norm ({_of(normed)})"
    return [
        _vulnerable(results, normed),
        _gain(results, hundred, normed, both),
        *[_gain(results, hundred, [norm], both, judged=False) for norm in normed],
        *[_gain(results, hundred, normed, (how,), judged=False) for how in both],
        _gain(results, ten, normed, both, judged=False),
        _mechanism(results, normed),
        *[_mechanism(results, [norm], judged=False) for norm in normed],
        Verdict(claim, OWN, f"{spread(own, 1)} against {spread(bare, 1)}", *better(bare, own, LEAST)),
    ]


def _of(norms: list[str]) -> str:
    return _label(norms[0]) if len(norms) == 1 else f"mean over {len(norms)} norms"


def _mean(results: Results, part: str, norms: Sequence[str], evaluations: Sequence[str]) -> dict[Pair, float]:
    """Accuracy, mean over norms and evaluations."""
    return over([_values(results, part, norm, how) for norm in norms for how in evaluations])


def _gain(
    results: Results, data: str, norms: list[str], evaluations: tuple[str, ...], *, judged: bool = True
) -> Verdict:
    """Whether weight decay raises accuracy on changed images, in per cent of that without it."""
    without, with_decay = (_mean(results, f"{data}, {part}", norms, evaluations) for part in (WITHOUT, WITH))
    gains = {pair: 100 * (with_decay[pair] / without[pair] - 1) for pair in without if with_decay.get(pair)}
    under = "noise and BIM" if len(evaluations) > 1 else "noise" if evaluations[0] == NOISE else "BIM"
    answer = above(gains, 0.0, GAIN)
    return Verdict(
        f"{SETS[data]}: weight decay raises the accuracy under {under} ({_of(norms)})",
        _printed(data, norms, under),
        f"{spread(without, 1)} → {spread(with_decay, 1)}, {spread(gains, 1)} %" if gains else "",
        *(answer if judged else explored(answer)),
    )


def _printed(data: str, norms: list[str], under: str) -> str:
    """The mean of a published table over these norms and evaluations."""
    places = {"noise": (1,), "BIM": (2,)}.get(under, (1, 2))
    rows = [PUBLISHED[data][_label(norm)] for norm in norms]
    before, after = (fmean(row[part][i] for row in rows for i in places) for part in (0, 1))
    return f"{TABLES[data]}: {before:.1f} → {after:.1f}" + (", lower" if after < before else "")


def _vulnerable(results: Results, norms: list[str]) -> Verdict:
    """Whether BIM costs accuracy, in per cent of the clean one."""
    part, attack = f"cifar100, {WITHOUT}", _bim(results.preset)
    clean, attacked = (_mean(results, part, norms, (how,)) for how in ("clean", attack))
    lost = {pair: 100 * (1 - attacked[pair] / clean[pair]) for pair in clean if clean[pair]}
    return Verdict(
        f"{SETS['cifar100']}: networks with these norms are vulnerable to BIM ({_of(norms)})",
        "Table 2: 64.3 → 18.9",
        f"{spread(clean, 1)} → {spread(attacked, 1)}" if lost else "",
        *above(lost, 0.0, LOSS),
    )


def _mechanism(results: Results, norms: list[str], *, judged: bool = True) -> Verdict:
    """If large weights amplified attacks, the same network with weights a hundred times as large would fall deeper."""
    part, controls = f"{CONTROLLED}, {WITHOUT}", _controls(results.preset)
    small, large = (_mean(results, part, norms, (controls[factor],)) for factor in FACTORS)
    answer = above({pair: small[pair] - large[pair] for pair in small}, LEAST)
    return Verdict(
        f"{SETS[CONTROLLED]}: larger weights amplify attacks: under BIM the same network is more than {LEAST:g} points "
        f"worse with weights × 10 than with weights × 0.1 ({_of(norms)})",
        "Sections 2.5 and 3.2, no figures",
        f"{spread(small, 1)} against {spread(large, 1)}",
        *(answer if judged else explored(answer)),
    )


_DIFFERS = f"""\
{smaller()}
- Those are the trainings on CIFAR-10. The ones on CIFAR-100 use 100 images of each class, as many as our subset has,
  and 26 epochs: {steps(HUNDRED):,} steps, in which weight decay alone shortens a weight by a factor of e.
- The paper reads off Table 2, for CIFAR-100, that accuracy increases a bit with weight decay. It makes one claim about
  four norms, noise and attack, so it is tested on their mean, in per cent of the accuracy without weight decay; single
  norms and single tests have no verdict. The paper also gives the distance to the clean accuracy.
- For CIFAR-10 the paper's own Table 1 says the opposite in part: under noise or BIM the accuracy is lower with weight
  decay in 4 of 8 cases, and its distance to the clean one larger in 6 of 8 (in one by 0.01 points). The text does not
  speak of it. Our trainings on CIFAR-10 are too short for weight decay to do much. So they decide nothing about it; the
  control and the comparison with a network without norms use them.
- The paper takes its settings from Galloway et al. (2019) without naming them; their code has two versions. Here noise
  of 1/16 (1/4 after standardizing) and 1/4, and BIM with 2/255 in 10 steps; 40 steps in the `paper` preset. Verdicts on
  noise use 1/16.
- The laptop preset tests BIM on 1000 images; everything else on 2000 of CIFAR-10 and 5000 of CIFAR-100.
- Most published figures for CIFAR-10 are multiples of 1/32: they may come from few images.
- LayerNorm is GroupNorm with one group. A network without norms is added, which is not in the paper.
- In the stored results on CIFAR-10 some seeds were trained on different processors.
- The control multiplies all scale-invariant weights by 0.1 and by 10 and recomputes the running statistics. Except for
  eps in the norms that is the same function. {LEAST:g} points are half of the smallest gain by weight decay under BIM
  in Table 2; that bound was chosen after the runs on CIFAR-10, from the paper alone."""

STUDY = Study(
    name="geometry-robustness",
    line="Clean, noise and BIM accuracy with and without weight decay; the same networks with rescaled weights",
    source=f"{SOURCE}, Tables 1 and 2",
    minutes={"laptop": 47},
    plan=plan,
    read=read,
    curves=(),
)
