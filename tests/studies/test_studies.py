"""Every study: its plan is sound, its smoke runs, and its page in the docs is what its results give."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from geonorm.lab.data import DataError, find_source
from studies import PRESETS, Study, page, reproduce, results, smoke, studies, study, write_page
from studies.index import write_all
from studies.recipe import StudyRecipe
from studies.verdicts import EXPLORATORY, FAILS, HOLDS, UNDECIDED

ROOT = Path(__file__).parents[2]
STORED = ROOT / "results"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.name)
def test_plans(study: Study) -> None:
    for preset in PRESETS:
        parts = study.plan(preset)
        assert parts
        keys = [run.key for recipe in parts.values() for run in recipe.runs()]
        assert len(keys) == len(set(keys)), "a training stands in two parts"


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smoke must not need any files."""
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()


def check_smoke(chosen: Study, preset: str, folder: Path) -> None:
    """Every norm, loss and corruption of every part ran under every evaluation, and the page can be written."""
    found = reproduce(chosen.name, preset, smoke=True, folder=folder)
    assert (found.preset, found.smoke) == (preset, True)
    stored = results.read(folder / chosen.name / f"{preset}-smoke.jsonl")
    assert stored.smoke
    assert [one[:3] for one in stored.records] == [one[:3] for one in found.records]  # figures may be NaN
    parts = chosen.plan(preset)
    for part, recipe in parts.items():
        shown = {tuple(one.choices[axis] for axis in ("norm", "loss", "corruption")) for one in found.of(part)}
        assert len(shown) == len(recipe.norms) * len(recipe.losses) * len(recipe.corruptions), part
    for one in smoke.as_planned(found, parts).records:
        assert tuple(one.figures) == parts[one.part].evaluations
    written = write_page(chosen.name, found, folder)
    assert written.stem == (f"{chosen.name}-smoke" if preset == "laptop" else f"{chosen.name}-paper-smoke")
    assert smoke.SAID in written.read_text()
    assert not (folder / chosen.name / f"{preset}.jsonl").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("chosen", studies(), ids=lambda study: study.name)
def test_smoke(chosen: Study, preset: str, tmp_path: Path) -> None:
    check_smoke(chosen, preset, tmp_path)


@pytest.mark.usefixtures("no_data")
def test_quick_smoke(tmp_path: Path) -> None:
    """Parts of this one become the same training: it is run once, and each part has it."""
    check_smoke(study("geometry-batch"), "laptop", tmp_path)


def test_what_a_smoke_leaves_of_a_recipe() -> None:
    attack, fog = "bim(eps=0.1, step=0.01, steps=40, samples=9)", "cifar10c(corruption=fog, severity=3)"
    snow = fog.replace("fog", "snow")
    whole = StudyRecipe(
        data="cifar100", model="resnet101", norms=("bn", "gn"), evaluations=(attack, fog, snow), processes=8
    )
    small = smoke.shrunk(whole)
    assert small.norms == whole.norms
    assert (small.seeds, small.epochs, small.processes) == ((0,), 1, 1)
    assert small.evaluations == ("bim(eps=0.1, step=0.01, steps=2, samples=9)", "contrast(severity=3)")
    assert small.data == "stripes"
    assert small.data_options["side"] == 32
    with pytest.raises(ValueError, match="did you mean 'cifar10'"):
        smoke.shrunk(StudyRecipe(data="cifar1"))


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("chosen", studies(), ids=lambda study: study.name)
def test_data_that_are_missing_are_all_named(
    chosen: Study, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    missing = [
        name
        for name in sorted({recipe.data for recipe in chosen.plan(preset).values()})
        if not find_source(name).at_hand
    ]
    if not missing:
        return
    with pytest.raises(DataError) as told:
        reproduce(chosen.name, preset, folder=tmp_path)
    for name in missing:
        assert f"{name} is not at hand: looked for {find_source(name).where}" in str(told.value)
        assert find_source(name).how in str(told.value)
    assert "Set GEONORM_DATA" in str(told.value)


@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.skipif(not STORED.exists(), reason="no results are stored")
def test_the_pages_are_what_the_results_give(drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m benchmarks.verdicts` writes them anew. Drawing their charts takes most of the time."""
    if not drawn:
        monkeypatch.setattr(page, "_draw", lambda chart, path: path.touch())
    write_all(STORED, tmp_path)
    docs = ROOT / "docs" / "reproduce"
    assert {made.name for made in tmp_path.iterdir()} == {kept.name for kept in docs.iterdir()}
    for made in tmp_path.iterdir():
        if drawn or made.suffix == ".md":
            assert made.read_bytes() == (docs / made.name).read_bytes(), made.name


def quoted(name: str) -> str:
    """The words of a page, whatever their lines."""
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def mean(name: str, part: str, how: str = "clean", figure: str = "accuracy", **choices: str) -> float:
    values = results.read(STORED / name / "laptop.jsonl").values(results.accuracy(how, figure), part, **choices)
    return sum(values.values()) / len(values)


def test_choosing_quotes_the_results() -> None:
    text = quoted("choosing.md")
    plain, median, robust = (mean("augnorm-cifar", "vgg19", norm=norm) for norm in ("bn", "median", "robustbn"))
    assert f"{plain - median:.1f} and {plain - robust:.1f} points of a small VGG's {plain:.0f} %" in text

    def phi(part: str, norm: str, corruption: str = "clean") -> float:
        return mean("augnorm-phi", part, norm=norm, corruption=corruption)

    layer, robust, rms, batch = (
        phi("digits", norm, "feature")
        for norm in (
            "ln",
            *(f"augbn(phi={kind})" for kind in ("1.5, spread=robust", "1.5, spread=rms", "2, spread=rms")),
        )
    )
    assert f"`ln` kept {layer:.0f} %, φ=1.5 with the robust spread {robust:.0f} %, with the rms {rms:.0f} %" in text
    assert f"with the rms {rms:.0f} %, BatchNorm {batch:.0f} %" in text
    median, batch, midrange = (phi("cifar10", f"augbn(phi={end}, spread=rms)") for end in ("1", "2", "inf"))
    assert f"cost {batch - median:.0f} and {batch - midrange:.0f} points of {batch:.0f}" in text
    moved = [
        abs(phi - 1.5)
        for record in results.read(STORED / "augnorm-shift" / "laptop.jsonl").records
        if record.part in ("compas", "adult")  # about 250 steps
        for phi in record.curve.get("phi", [{}])[-1].values()
    ]
    assert max(moved) < 0.001
    assert "it was within 0.001 of its start" in text


def test_robust_training_quotes_the_results() -> None:
    losses = {loss.partition("(")[0]: loss for loss in study("augnorm-shift").plan("laptop")["minority 1 %"].losses}
    erm, cvar, chi, cvar_doro, chi_doro = (
        mean("augnorm-shift", "minority 1 %", figure="worst_group", norm="bn", loss=losses[name])
        for name in ("erm", "cvar", "chi_square", "cvar_doro", "chi_square_doro")
    )
    text = quoted("robust.md")
    assert f"from {erm:.0f} to {cvar:.0f} and {chi:.0f} %" in text
    assert f"lowered it to {cvar_doro:.0f} and {chi_doro:.0f} %" in text
    assert "all four ended with a training loss above ln 2" in text
    stored = results.read(STORED / "augnorm-shift" / "laptop.jsonl").records
    robust = [r for r in stored if r.part in ("compas", "adult") and r.choices["loss"] != "erm"]
    assert len(robust) == 2 * 4 * 3 * 10  # data, losses, norms, seeds
    assert min(record.curve["loss"][-1] for record in robust) > math.log(2)


def test_the_page_on_graphs_quotes_the_results() -> None:
    found = results.read(STORED / "augnorm-graphs" / "paper.jsonl")

    def end(part: str, norm: str, how: str = "clean") -> float:
        values = found.values(results.accuracy(how), part, norm=norm)
        return sum(values.values()) / len(values)

    graph, batch = (end("mutag, text", norm) for norm in ("graphnorm", "bn"))
    anew = end("mutag, text", "bn", "clean(recalibrated=true)")
    text = quoted("layers/graph.md")
    assert f"had {graph:.0f} % with `graphnorm` and {batch:.0f} % with BatchNorm" in text
    assert f"recomputed, it had {anew:.0f} %" in text
    for data in ("mutag", "ptc", "proteins"):
        both = [end(f"{data}, code", norm) for norm in ("graphnorm", "bn")]
        assert f"{both[0]:.0f} and {both[1]:.0f} % on {data.upper()}" in text


def decided(name: str, *ends: str) -> list[str]:
    """The verdicts of a study on all claims that end so."""
    found = study(name).page(results.read(STORED / name / "laptop.jsonl")).verdicts
    judged = [one.verdict for one in found if one.claim.endswith(ends) and one.verdict != EXPLORATORY]
    assert judged, f"{name} has no claim that ends with {ends}"
    return judged


def test_the_findings_in_words_are_verdicts() -> None:
    text = quoted("findings.md")
    assert "φ=1.5 was not better for that group" in text
    assert decided("augnorm-shift", "φ=1.5 has a better worst group than BatchNorm")[-1] == FAILS
    assert "On noisy or low-contrast test images it was not better than BatchNorm either" in text
    assert decided("augnorm-corruptions", "more accurate than BatchNorm on worse images") == [FAILS] * 2
    assert "On digits it helped significantly against an offset and a broken pixel" in text
    offset, gain, tails, pixel, _ = decided("augnorm-phi", "φ=1.5 with robust spread is better than BatchNorm")
    assert (offset, gain, tails, pixel) == (HOLDS, UNDECIDED, UNDECIDED, HOLDS)
    assert "In none of the four cases was it better than LayerNorm" in text
    assert decided("augnorm-phi", "is better than LayerNorm") == [FAILS] * 4

    assert "POP-Norm lowers the quantities in the bounds" in text
    of_bounds = [f"{which}, mean of three activations" for which in _BOUNDS]
    assert [decided("popnorm-theory", one) for one in of_bounds] == [[HOLDS]] * len(of_bounds)
    assert "stands larger rates than no normalization" in text
    assert decided("popnorm-theory", "larger rate than no normalization, mean of three activations") == [HOLDS]
    assert "κ=4 trains faster than κ=1, and 16 is too much" in text
    assert decided("popnorm-kappa", "faster than κ=1, mean of three activations") == [HOLDS]
    assert decided("popnorm-kappa", "lower training loss than κ=16, mean of three activations") == [HOLDS]
    assert "rates for all parameters, without κ, did better" in text
    assert decided("popnorm-kappa", "all rates/16, mean of three activations") == [FAILS]
    assert "neither sharpness nor gradient variance falls. In the last layer they fall with κ" in text
    for quantity in ("Lipschitz constant", "gradient variance"):
        assert decided("popnorm-theory", f"{quantity} falls as κ grows, mean of three activations") == [FAILS, HOLDS]
        end = (
            f"{quantity}{' of the gradient' * (quantity == 'Lipschitz constant')} lower under POP-Norm, κ=4, than under"
        )
        assert decided("popnorm-theory", f"{end} BatchNorm") == [FAILS]
    assert "A sigmoid does undo the effect of BatchNorm" in text
    assert decided("popnorm-theory", "is destroyed (mean²/rms² over 0.5)", "is destroyed (under 0.5)") == [HOLDS] * 2

    assert "Weights grow without weight decay" in text
    assert decided("geometry-growth", "by more than 1 % (mean over norms)") == [HOLDS]
    assert "succeed equally often" in text
    assert decided("geometry-robustness", "than with weights × 0.1 (mean over 4 norms)") == [FAILS]
    assert decided("geometry-prune", "maintains accuracy (within 0.8 points)") == [FAILS]
    assert "SphereSGD was not more stable" in text
    assert decided("geometry-sphere", "at the rates below and above its best one") == [FAILS]
    assert "a batch as large as the network is wide was not the best" in text
    assert decided("geometry-batch", "is best (mean over widths and budgets)") == [FAILS]


_BOUNDS = (
    "mean removal lowers E‖x‖², the factor in the bound of the gradient variance",
    "mean removal lowers λ max of E[xxᵗ], in the bound of the Lipschitz constant",
    "division lowers E‖x‖², the factor in the bound of the gradient variance",
    "division lowers λ max of E[xxᵗ], in the bound of the Lipschitz constant",
    "POP-Norm lowers the condition number of E[xxᵗ]",
)
