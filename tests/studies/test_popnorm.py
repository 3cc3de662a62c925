"""The POP-Norm studies: what they add to the lab, and pages from results that are not complete."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from geonorm.lab.augment import window
from geonorm.lab.choices import parse_evaluation
from geonorm.lab.data import load
from geonorm.lab.ddp_team import Team
from geonorm.lab.evaluate import evaluate
from geonorm.lab.models import create_model
from geonorm.lab.recipe import Run
from geonorm.lab.train import Training
from studies import popnorm_ablation, popnorm_imagenet, study, write_page
from studies.curvature_probes import arrival, sharpness, slopes
from studies.popnorm import mean_by_seed
from studies.recipe import StudyRecipe, StudySource
from studies.results import Record, Results
from studies.verdicts import FAILS, HOLDS, OWN, UNDECIDED, Verdict

STUDIES = ["popnorm-kappa", "popnorm-ablation", "popnorm-accuracy", "popnorm-imagenet", "popnorm-theory"]


def training(run: Run) -> Training:
    source = StudySource()
    task = source.task(run)
    torch.manual_seed(run["seed"])
    return source.training(run, task, Team())


@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_kappa_is_first_weights_and_rates(activation: str) -> None:
    """F(w/κ) from w at the rate α is F(v) from v = w/κ at the rate α/κ², with momentum and weight decay too."""
    options = {"activation": activation, "hidden": 16}
    own = StudyRecipe(
        norms=("pop(kappa=4)",), model_options=options, epochs=2, weight_decay=5e-4, decay="linear", batch_size=256
    )
    imitated = replace(own, norms=("pop(kappa=1)",), weights_as_kappa=4)
    plain = replace(own, norms=("pop(kappa=1)",))
    curves = []
    for recipe in (own, imitated, plain):
        one = training(recipe.runs()[0])
        curves.append([one.epoch()["loss"] for _ in range(2)])
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert curves[0] != pytest.approx(curves[2], rel=1e-3)


def test_runs_of_older_stores_keep_their_keys() -> None:
    assert "weights_as_kappa" not in StudyRecipe().runs()[0].choices
    assert StudyRecipe(weights_as_kappa=4).runs()[0]["weights_as_kappa"] == 4
    with pytest.raises(ValueError, match="only with the optimizer 'sgd'"):
        StudyRecipe(weights_as_kappa=4, optimizer="adam")


def test_places_of_a_pop_norm() -> None:
    def names(place: str) -> list[str]:
        model = create_model("mlp", "pop", place=place)
        return [name for name, module in model.named_modules() if type(module).__name__ == "PopNorm1d"]

    assert names("before") == ["layers.0.pre_norm", "layers.3.pre_norm"]
    assert names("before_all") == ["layers.0.pre_norm", "layers.3.pre_norm", "head.pre_norm"]
    assert names("behind") == ["layers.1", "layers.4"]
    with pytest.raises(ValueError, match="expected place to be one of"):
        create_model("mlp", "pop", place="above")


def test_top_five() -> None:
    task = load("digits")
    torch.manual_seed(0)
    model = create_model("mlp", "bn")
    found = [evaluate(model, task, parse_evaluation(f"clean(top={k})"), 0)["accuracy"] for k in (1, 5, 10)]
    assert found[0] == evaluate(model, task, parse_evaluation("clean"), 0)["accuracy"]
    assert found[0] < found[1] < found[2] == 1


def test_windows_are_parts_of_the_enlarged_image() -> None:
    ramp = torch.arange(14.0).expand(64, 3, 14, 14)
    torch.manual_seed(0)
    cut = window(ramp)
    assert cut.shape == ramp.shape
    assert {round(float(first), 3) for first in cut[:, 0, 0, 0]} == {0.0, 0.812, 1.688}


def test_stripes_show_their_class() -> None:
    task = load("stripes", train_size=400, test_size=100, side=16)
    assert torch.equal(task.train.tensor(), load("stripes", train_size=400, test_size=100, side=16).train.tensor())
    small = {"width": 0.1, "depth": 0.3}
    recipe = StudyRecipe(
        data="stripes", data_options={"side": 16}, model="vgg16", model_options=small, batch_size=32, epochs=3
    )
    one = training(recipe.runs()[0])
    assert [one.epoch() for _ in range(3)][-1]["train_accuracy"] > 0.6
    with pytest.raises(ValueError, match="expected classes to be a whole number from 2"):
        load("stripes", classes=1)


def test_probes_leave_the_model_alone_and_see_kappa() -> None:
    task = load("digits")
    torch.manual_seed(0)
    model = create_model("mlp", "pop", "relu", place="before_all", hidden=8, input_shape=(1, 8, 8)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = sharpness(model, task)
    assert found["lipschitz"] > 0
    assert found["variance"] > 0
    assert len(found["condition"]) == 3
    assert arrival(model, task)["rms"] == pytest.approx([0.25] * 3, rel=0.2)
    against = slopes(model, task)["largest"]
    assert against[-1] == pytest.approx(-2, abs=0.3)  # the last layer
    assert against[1] == pytest.approx(0, abs=0.3)  # an inner one: the next POP-Norm divides κ away
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", STUDIES)
def test_pages_without_results(name: str, tmp_path: Path) -> None:
    assert "## Verdicts" in write_page(name, Results("laptop", ()), tmp_path).read_text()


FIGURES = ("clean", "clean(recalibrated=true)", "clean(top=5)")


def trained(part: str, norm: str, *values: float, curve: str = "loss") -> list[Record]:
    """One training per value, from seed 1 on: a final loss, a share of training samples, or an accuracy."""
    found = []
    for seed, value in enumerate(values, 1):
        curves = {"loss": [2.3], "train_accuracy": [0.5], **({curve: [value]} if curve else {})}
        figures = {how: {"accuracy": 0.1 if curve else value} for how in FIGURES}
        choices = {"norm": norm, "seed": seed, "fold": None}
        found.append(Record(f"{part} {norm} {seed}", part, choices, figures, curves, 1.0))
    return found


def ruled(name: str, *records: list[Record], preset: str = "laptop") -> dict[str, Verdict]:
    """The verdicts of a study by claim."""
    verdicts = study(name).read(Results(preset, tuple(record for some in records for record in some))).verdicts
    found = {one.claim: one for one in verdicts}
    assert len(found) == len(verdicts)
    return found


def test_means_by_seed_are_no_more_pairs_than_seeds() -> None:
    parts = [{(1, None): 1.0, (2, None): 2.0}, {(1, None): 3.0, (2, None): 6.0}, {(1, None): 5.0}]
    assert mean_by_seed(parts[:2]) == {(1, None): 2.0, (2, None): 4.0}
    assert mean_by_seed(parts) == {(1, None): 3.0}


def test_kappa_beside_small_weights_and_rates() -> None:
    low, high = (1.2, 1.21, 1.22), (1.5, 1.52, 1.51)
    four = trained("tanh", "pop(kappa=4)", *low)
    same = trained("tanh, weights as if κ=4", "pop(kappa=1)", *low)
    claim = "Tanh: κ=4 ends with a lower training loss than κ=1 with all initial weights/4 and all rates/16"
    for losses, verdict in ((high, HOLDS), ((0.9, 0.92, 0.91), FAILS)):
        scaled = trained("tanh, everything as if κ=4", "pop(kappa=1)", *losses)
        found = ruled("popnorm-kappa", four, same, scaled)
        assert list(found) == [claim]  # that κ is its imitation is a check, not a claim
        assert (found[claim].verdict, found[claim].published) == (verdict, OWN)
    found = ruled("popnorm-kappa", four, trained("tanh", "pop(kappa=1)", *high))
    assert found["Tanh: κ=4 ends with a lower training loss than κ=1"].verdict == HOLDS
    page = study("popnorm-kappa").read(Results("laptop", (*four, *same)))
    assert "differ by at most 0 in 3 pairs" in page.blocks[0].note


NONE, DIVISION = popnorm_ablation.NONE, popnorm_ablation.DIVISION
CHANCE = (0.1, 0.101, 0.102)


def parts_alone(label: str, activation: str, rate: float, *right: float) -> list[Record]:
    arm = popnorm_ablation.ARMS[label]._replace(rate=rate)
    return trained(popnorm_ablation._part(activation, arm), arm.norm, *right, curve="train_accuracy")


def test_a_part_that_is_said_not_to_train() -> None:
    """One verdict over all rates at which ReLU trains; the best of them counts."""
    relu = [
        parts_alone(NONE, "relu", 0.00005, *CHANCE),
        parts_alone(popnorm_ablation.MEAN, "relu", 0.005, 0.4, 0.41, 0.42),
        parts_alone(DIVISION, "relu", 0.1, 0.5, 0.51, 0.52),
    ]
    claim = "Sigmoid: division by l2 alone does not train at rates of 0.005 and 0.1"
    for slow, fast, verdict in (
        (CHANCE, (0.099, 0.1, 0.101), HOLDS),
        ((0.3, 0.31, 0.32), CHANCE, FAILS),
        (CHANCE, (0.3, 0.31, 0.32), FAILS),
    ):
        sigmoid = [parts_alone(DIVISION, "sigmoid", rate, *right) for rate, right in ((0.005, slow), (0.1, fast))]
        lowest = parts_alone(DIVISION, "sigmoid", 0.00005, 0.6, 0.61, 0.62)
        assert ruled("popnorm-ablation", *relu, *sigmoid, lowest)[claim].verdict == verdict


def test_not_to_train_says_nothing_where_nothing_trains() -> None:
    relu = parts_alone(DIVISION, "relu", 0.1, *CHANCE)
    sigmoid = [parts_alone(DIVISION, "sigmoid", rate, *CHANCE) for rate in popnorm_ablation.RATES]
    (found,) = ruled("popnorm-ablation", relu, *sigmoid).values()
    assert (found.verdict, found.why) == (UNDECIDED, "nothing trains with ReLU either")


def test_remark_1_is_about_level_losses() -> None:
    pop = trained("relu, rate 0.1", "pop", 1.25, 1.26, 1.27)
    for losses, verdict in (((1.26, 1.25, 1.28), HOLDS), ((1.5, 1.51, 1.52), FAILS), ((1.35, 1.36, 1.38), UNDECIDED)):
        (found,) = ruled("popnorm-ablation", pop, trained("relu, rate 0.1", "pop(order=scale_first)", *losses)).values()
        assert found.claim == "ReLU: POP-Norm, division first ends within 0.1 of the training loss of POP-Norm"
        assert (found.verdict, found.published) == (verdict, "Remark 1")


def test_accuracies_of_four_settings_are_one_pair_per_seed() -> None:
    gaps = {"cifar10, vgg16": 0.3, "cifar10, resnet20": 0.2, "cifar100, vgg16": -0.05, "cifar100, resnet20": -0.04}
    records = []
    for setting, gap in gaps.items():
        records.append(trained(f"{setting}, relu", "bn", 0.4, 0.41, 0.42, curve=""))
        records.append(trained(f"{setting}, relu", "pop", 0.4 + gap, 0.412 + gap, 0.421 + gap, curve=""))
    found = ruled("popnorm-accuracy", *records)
    assert found["CIFAR-10, small VGG-16, ReLU: POP-Norm is more accurate than BatchNorm"].verdict == HOLDS
    assert found["CIFAR-100, small VGG-16, ReLU: POP-Norm is more accurate than BatchNorm"].verdict == FAILS
    (anew,) = [one for claim, one in found.items() if "mean over sets and networks" in claim]
    assert (anew.verdict, anew.published) == (HOLDS, OWN)
    assert "3 pairs" in anew.why
    assert "CIFAR-10, VGG-16, ReLU: POP-Norm is more accurate than BatchNorm" in ruled(
        "popnorm-accuracy", *records, preset="paper"
    )


def test_only_the_paper_preset_speaks_of_imagenet() -> None:
    records = [
        trained("images", "bn", 0.4, 0.41, 0.42, curve=""),
        trained("images", "pop", 0.5, 0.512, 0.521, curve=""),
    ]
    small, large = (ruled("popnorm-imagenet", *records, preset=preset) for preset in ("laptop", "paper"))
    assert {one.published for one in small.values()} == {OWN}
    assert {one.verdict for one in small.values()} == {HOLDS}
    assert not any(claim.startswith("ImageNet") for claim in small)
    claim = "ImageNet, ResNet-18: POP-Norm has a higher top-1 accuracy than BatchNorm"
    assert large[claim].published == "67.53 against 66.81"


def measured(norm: str, *conditions: float) -> list[Record]:
    """Trainings with sigmoid whose third convolution has these condition numbers; the last one's is infinite."""
    found = []
    for record, value in zip(trained("sigmoid", norm, *conditions), conditions, strict=True):
        sharpness = {"condition": [10.0, 10.0, value, 10.0, math.inf, 10.0], "variance": 1.0, "lipschitz": 1.0}
        arrival = {"mean_share": [0.5] * 6, "division": [0.5] * 6}
        found.append(record._replace(curve={"sharpness": [sharpness], "arrival": [arrival]}))
    return found


def test_infinite_condition_numbers_are_shown_and_not_judged() -> None:
    claim = "Sigmoid: condition number of the inputs lower under POP-Norm, κ=4, than under BatchNorm"
    batch = measured("bn", 1e6, 1.1e6, 1.2e6)
    finite = measured("pop(kappa=4)", 1e3, 1.2e3, 1.1e3)
    assert ruled("popnorm-theory", batch, finite)[claim].verdict == HOLDS
    infinite = measured("pop(kappa=4)", 1e3, 1.2e3, math.inf)
    found = ruled("popnorm-theory", batch, infinite)[claim]
    assert (found.verdict, found.why) == (UNDECIDED, "infinite in some measurements")
    assert "∞ in 1 of 9" in found.ours


def test_slopes_of_all_activations_are_one_verdict() -> None:
    def found(last: float) -> Verdict:
        records = []
        for activation, shift in (("sigmoid", -0.1), ("tanh", 0.0), ("relu", 0.1)):
            for record in trained(f"{activation}, slopes", "pop(kappa=4)", 0.0, 0.01, 0.02):
                seed = record.curve["loss"][0]
                slopes = {kind: [0.0, 0.0, 0.0, last + shift + seed] for kind in ("largest", "variance")}
                records.append(record._replace(curve={"slopes": [slopes]}))
        return ruled("popnorm-theory", records)[
            "Weights of the last layer: gradient variance proportional to 1/κ² (slope −2), mean of three activations"
        ]

    assert [found(last).verdict for last in (-2.0, -1.0, -1.5)] == [HOLDS, FAILS, UNDECIDED]


def test_imagenet_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laptop preset reads whatever folder is given."""
    image = pytest.importorskip("PIL.Image")
    for part, number in (("train", 6), ("val", 3)):
        for red, name in ((50, "cat"), (200, "dog")):
            home = tmp_path / "imagenet" / part / name
            home.mkdir(parents=True)
            for i in range(number):
                image.new("RGB", (40, 36), (red, 10 * i, 0)).save(home / f"{i}.png")
    monkeypatch.setenv("GEONORM_DATA", str(tmp_path))
    (recipe,) = popnorm_imagenet.plan("laptop").values()
    one = training(replace(recipe, epochs=1, model_options={"stem": "imagenet", "width": 0.1}).runs()[1])
    assert 0 <= one.epoch()["accuracy"] <= 1
    assert {recipe.data for recipe in study("popnorm-imagenet").plan("laptop").values()} == {"image_folder"}
    (paper,) = popnorm_imagenet.plan("paper").values()
    assert paper.processes == 8
