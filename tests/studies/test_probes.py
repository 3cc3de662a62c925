"""What is measured inside the model after every epoch; the model does not notice."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from geonorm.lab.data import load
from geonorm.lab.models import create_model
from geonorm.lab.train import correct
from geonorm.robust import group_accuracy
from studies.exponent_probes import accuracy_on_training, eight_steps, exponents
from studies.models.newton import NewtonNorm
from studies.probes import PROBES, invariant_lengths, moments, worst_groups

TASK = load("digits")


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("norm", ["bn", "gn(groups=4)", "wn", "none", "pop"])
def test_nothing_about_the_model_changes(probe: str, norm: str) -> None:
    if probe == "slopes" and norm != "pop":
        pytest.skip("only POP-Norm has a κ to take slopes by")
    model = create_model("mlp", norm, input_shape=TASK.input_shape, hidden=16).eval()
    before = copy.deepcopy(model.state_dict())
    PROBES[probe](model, TASK)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize(("norm", "rows"), [("bn", 1), ("gn(groups=4)", 4), ("ln", 16), ("wn", 1)])
def test_lengths_of_invariant_weights(norm: str, rows: int) -> None:
    """Of the two hidden layers, not of the head; a part has so many rows."""
    model = create_model("mlp", norm, input_shape=TASK.input_shape, hidden=16).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    found = invariant_lengths(model, TASK)
    # The bias of a layer counts where the norm does not take it away.
    inputs = [inputs + (norm.startswith(("gn", "ln"))) for inputs in (64, 16)]
    assert found["whole"] == pytest.approx([0.5 * (16 * size) ** 0.5 for size in inputs])
    assert found["part"] == pytest.approx([0.5 * (rows * size) ** 0.5 for size in inputs])


def test_moments_depend_on_the_size_of_the_weight_but_not_at_length_1() -> None:
    torch.manual_seed(0)
    model = create_model("mlp", "bn", input_shape=TASK.input_shape, hidden=16, layers=1)
    before = moments(model, TASK)
    with torch.no_grad():
        model.get_parameter("layers.0.weight").mul_(10)
        model.get_parameter("layers.0.bias").mul_(10)
    after = moments(model, TASK)
    x = model.get_submodule("layers.0")(TASK.train.sample(512).tensor().flatten(1)).detach()
    assert after["gamma_gap"] == pytest.approx([float((1 - x.var(0, correction=0)).abs().mean())], rel=1e-5)
    assert after["beta_gap"] == pytest.approx([10 * before["beta_gap"][0]], rel=1e-5)
    shares = x.mean(0).abs() / (1 + x.var(0, correction=0)).sqrt()
    assert after["beta_share"] == pytest.approx([float(shares.mean())], rel=1e-5), "γ is 1 and β is 0"
    for name in ("gamma_gap_unit", "gamma_share_unit", "beta_gap_unit"):
        assert after[name] == pytest.approx(before[name], rel=1e-5)


def test_training_accuracy_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    model = create_model("mlp", "bn", input_shape=TASK.input_shape, hidden=16).eval()
    with torch.no_grad():
        best = model(TASK.train.x).argmax(1)
    assert accuracy_on_training(model, TASK) == pytest.approx(float((best == TASK.train.y).double().mean()))


def test_the_range_of_learned_exponents() -> None:
    model = create_model("mlp", lambda channels: NewtonNorm(channels, learned=True), input_shape=TASK.input_shape)
    assert exponents(create_model("mlp", "augbn", input_shape=TASK.input_shape), TASK) is None, "none is learned"
    layers = [module for module in model.modules() if isinstance(module, NewtonNorm)]
    with torch.no_grad():
        layers[0].phi[0], layers[1].phi[:2] = 0.5, torch.tensor([2.5, 1.5])
    found = exponents(model, TASK)
    assert found is not None
    assert (found["lowest"], found["highest"]) == (0.5, 2.5)
    assert found["lowest"] < found["mean"] < 1.5 + 1.0 / 128
    with torch.no_grad():
        layers[0].phi[0] = math.nan
    assert exponents(model, TASK) is None


@pytest.mark.parametrize(("phi", "is_enough"), [(2.0, True), (1.8, True), (1.1, False)])
def test_eight_steps_are_enough_near_the_mean_and_not_near_the_median(phi: float, is_enough: bool) -> None:
    torch.manual_seed(0)
    norm = f"augbn(phi={phi:g})"
    model = create_model("mlp", norm, input_shape=TASK.input_shape, hidden=32)
    found = eight_steps(model, TASK)
    if not is_enough:
        assert found["missed"] > 0.5, "under φ=1.5 the steps overshoot"
    else:
        assert found["missed"] == 0
        assert found["largest"] < torch.finfo(torch.float16).eps
    assert eight_steps(create_model("mlp", "bn", input_shape=TASK.input_shape), TASK) == {}


def test_worst_groups_of_validation_and_test_samples() -> None:
    data = load("subpopulations", train_size=50, test_size=400)
    model = create_model("mlp", "bn", classes=2, input_shape=data.input_shape, hidden=8).eval()
    right = correct(model, data.test)
    assert data.test.groups is not None
    worst = group_accuracy(right, data.test.groups).worst
    assert worst_groups(model, data) == {"test": worst, "test_all": float(right.double().mean())}
    both = worst_groups(model, replace(data, valid=data.test))
    assert both["valid"] == both["test"] == worst
    assert not worst_groups(model, TASK), "digits have no groups"
