"""Measuring a trained network again in another domain: the peers' formulas, and what each method changes."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.lab.batches import Inputs
from geonorm.lab.choices import parse_evaluation
from geonorm.lab.data import Split, Task
from geonorm.lab.evaluate import check_evaluation, evaluate
from studies.adapt import METHODS, adapt, other_camera
from studies.adapt_norms import IABN, MedBN, replace_norms

IMAGES = Split(torch.rand(96, 3, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 2)


def trained() -> nn.Sequential:
    """A network whose running statistics are those of the images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        model[1].weight.uniform_(0.5, 2)
        model[1].bias.normal_()
    geonorm.recalibrate(model, Inputs(IMAGES, 32))
    return model.eval()


def test_medbn_is_its_formula() -> None:
    norm = nn.BatchNorm2d(2)
    nn.init.constant_(norm.weight, 3)
    layer, batches = MedBN(norm).train(), [torch.randn(5, 2, 3, 3) for _ in range(3)]
    centers, variances = [], []
    for x in batches:
        y = layer(x)
        for c in range(2):
            values = x[:, c].flatten().sort().values
            median = values[(len(values) - 1) // 2]
            variance = ((values - median) ** 2).mean()
            torch.testing.assert_close(y[:, c], 3 * (x[:, c] - median) / (variance + 1e-5).sqrt())
            centers.append(median)
            variances.append(variance)
    torch.testing.assert_close(layer.center, torch.stack(centers).view(3, 2).mean(0))
    torch.testing.assert_close(layer.variance, torch.stack(variances).view(3, 2).mean(0))
    layer.eval()
    again = 3 * (batches[0] - layer.center.view(2, 1, 1)) / (layer.variance.view(2, 1, 1) + 1e-5).sqrt()
    torch.testing.assert_close(layer(batches[0]), again)


def test_iabn_is_its_formula() -> None:
    norm = nn.BatchNorm2d(2).eval()
    norm.running_mean.copy_(torch.tensor([0.5, -1.0]))
    norm.running_var.copy_(torch.tensor([2.0, 0.25]))
    x = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(1)) * torch.tensor([0.1, 1, 4, 50]).view(
        4, 1, 1, 1
    )
    found = IABN(norm, k=2)(x)

    def shrunk(value: float, by: float) -> float:
        return math.copysign(max(abs(value) - by, 0), value)

    for b in range(4):
        for c in range(2):
            mean, var = float(norm.running_mean[c]), float(norm.running_var[c])
            mu = mean + shrunk(float(x[b, c].mean()) - mean, 2 * math.sqrt(var / 25))
            square = var + shrunk(float(x[b, c].var(correction=0)) - var, 2 * var * math.sqrt(2 / 24))
            torch.testing.assert_close(found[b, c], (x[b, c] - mu) / math.sqrt(square + 1e-5), rtol=1e-4, atol=1e-5)


def test_iabn_of_one_position_has_no_variance_of_its_own() -> None:
    norm = nn.BatchNorm2d(2).eval()
    x = torch.randn(4, 2, 1, 1)
    torch.testing.assert_close(IABN(norm, k=1e6)(x), norm(x))
    assert IABN(norm)(1e4 * x).isfinite().all()


def test_replaced_norms_keep_mode_and_affine_map() -> None:
    model = trained()
    assert replace_norms(model, MedBN) == 1
    assert isinstance(model[1], MedBN)
    assert not model[1].training
    assert replace_norms(model, MedBN) == 0


def outputs(by: str, **junk: object) -> Tensor:
    model = trained()
    before = copy.deepcopy(model.state_dict())
    adapt(model, IMAGES, 0, by, **junk)  # type: ignore[arg-type]
    assert not model.training
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before if name.endswith(("weight", "bias")))
    with torch.no_grad():
        found: Tensor = model(other_camera(IMAGES).x)
    return found


@pytest.mark.parametrize("by", sorted(METHODS))
def test_every_method(by: str) -> None:
    """What does not look at the images is not touched by junk; the rest is that of the other camera."""
    clean, junk = outputs(by), outputs(by, junk="gain", share=0.1, strength=255)
    assert clean.isfinite().all()
    assert torch.equal(clean, junk) == (by in ("nothing", "iabn"))
    if by == "nothing":
        with torch.no_grad():
            torch.testing.assert_close(clean, trained()(other_camera(IMAGES).x))
    if by == "plain":  # undoes a factor and an offset of each colour but for the borders, of which there are none here
        model = trained()
        geonorm.recalibrate(model, Inputs(other_camera(IMAGES), 96))
        with torch.no_grad():
            torch.testing.assert_close(clean, model(other_camera(IMAGES).x), rtol=1e-3, atol=1e-3)


def test_junk_moves_plain_statistics() -> None:
    clean, junk = outputs("plain"), outputs("plain", junk="gain", share=0.1, strength=255)
    assert (junk.std(0) < 0.1 * clean.std(0)).all()  # images that all look alike


def test_as_an_evaluation() -> None:
    model, task = trained(), Task("t", IMAGES, IMAGES, 2, (3, 6, 6))
    how = parse_evaluation("adapted(by=plain, junk=stuck, share=0.25, strength=1, samples=50)")
    before = copy.deepcopy(model.state_dict())
    assert evaluate(model, task, how, seed=0)["total"] == 50
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="expected images for the evaluation 'adapted'"):
        check_evaluation(Task("t", flat := Split(IMAGES.x.flatten(1), IMAGES.y), flat, 2, (108,)), how)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adapted(share=0.1)", r"expected by in .*, as in adapted\(by=guard\)"),
        ("adapted(by=magic, share=0)", "expected by in .* to be one of nothing, plain"),
        ("adapted(by=plain, junk=labels, share=0)", "expected junk in .* to be one of offset"),
        ("adapted(by=plain)", "expected share in"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_evaluation(text)


def test_a_network_without_batchnorm() -> None:
    with pytest.raises(ValueError, match=r"with BatchNorm2d to adapt .* use the norm 'bn'"):
        adapt(nn.Sequential(nn.Conv2d(3, 2, 3), nn.GroupNorm(1, 2)), IMAGES, 0, "plain")
