"""The POP-Norm studies: what they add to the lab, and pages from results that are not complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from geonorm.lab import Recipe
from geonorm.lab.augment import window
from geonorm.lab.choices import parse_evaluation
from geonorm.lab.curvature_probes import arrival, sharpness, slopes
from geonorm.lab.data import load
from geonorm.lab.evaluate import evaluate
from geonorm.lab.models import create_model
from geonorm.lab.recipe import Run
from geonorm.lab.reproduce import popnorm_ablation, popnorm_imagenet, study, write_page
from geonorm.lab.reproduce.results import Record, Results
from geonorm.lab.reproduce.verdicts import FAILS, HOLDS
from geonorm.lab.runner import Named
from geonorm.lab.train import Training

STUDIES = ["popnorm-kappa", "popnorm-ablation", "popnorm-accuracy", "popnorm-imagenet", "popnorm-theory"]


def training(run: Run) -> Training:
    source = Named()
    task = source.task(run)
    torch.manual_seed(run["seed"])
    return Training(source.model(run, task), task, run.choices)


@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_kappa_is_first_weights_and_rates(activation: str) -> None:
    """F(w/κ) from w at the rate α is F(v) from v = w/κ at the rate α/κ², with momentum and weight decay too."""
    options = {"activation": activation, "hidden": 16}
    own = Recipe(
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
    assert "weights_as_kappa" not in Recipe().runs()[0].choices
    assert Recipe(weights_as_kappa=4).runs()[0]["weights_as_kappa"] == 4
    with pytest.raises(ValueError, match="only with the optimizer 'sgd'"):
        Recipe(weights_as_kappa=4, optimizer="adam")


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
    recipe = Recipe(
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


def test_a_part_that_is_said_not_to_train() -> None:
    arm = popnorm_ablation.ARMS["division by l2"]
    part = popnorm_ablation._part("sigmoid", arm)

    def results(*right: float) -> Results:
        curve = [{"loss": [2.3], "train_accuracy": [value]} for value in right]
        figures = {how: {"accuracy": 0.1} for how in ("clean", "clean(recalibrated=true)")}
        choices = [{"norm": arm.norm, "seed": seed, "fold": None} for seed in range(len(right))]
        records = [Record(str(i), part, choices[i], figures, curve[i], 1.0) for i in range(len(right))]
        return Results("laptop", tuple(records))

    (verdict,) = popnorm_ablation.read(results(0.1, 0.101, 0.102)).verdicts
    assert verdict.verdict == HOLDS
    (verdict,) = popnorm_ablation.read(results(0.3, 0.31, 0.32)).verdicts
    assert verdict.verdict == FAILS


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
