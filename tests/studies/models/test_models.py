"""Networks of the studies: parameters as published, and what sets them apart; tests/lab/models trains them."""

import pytest
import torch
from torch import nn

from geonorm.functional import joint_center
from geonorm.lab.models import create_model
from studies.models.joint import JointNorm
from studies.models.newton import NEWTONS, NewtonNorm
from studies.recipe import StudyRecipe, StudySource

# With BatchNorm and 10 classes, as reported for kuangliu/pytorch-cifar. Its EfficientNet also counts a 1×1 convolution
# (32·32) and a BatchNorm (2·32) of the first block that its forward skips: 3,599,686 with them.
CIFAR = {
    "mobilenetv2": 2_296_922,
    "densenet121": 6_956_298,
    "efficientnetb0": 3_599_686 - 32 * 32 - 2 * 32,
}


@pytest.mark.parametrize("name", CIFAR)
def test_parameter_counts(name: str) -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in create_model(name).parameters()) == CIFAR[name]


def test_efficientnet_has_silu_of_its_own() -> None:
    def has_silu(**options: str) -> bool:
        model = create_model("efficientnetb0", width=0.1, **options)
        return any(isinstance(module, nn.SiLU) for module in model.modules())

    assert has_silu()
    assert not has_silu(activation="relu")


def test_densenet_takes_no_norms_on_weights() -> None:
    with pytest.raises(ValueError, match="has its norms before operations"):
        create_model("densenet121", "wn")


@pytest.mark.parametrize("name", NEWTONS)
def test_newton_is_a_norm_of_studies_alone(name: str) -> None:
    (run,) = StudyRecipe(norms=(name,), seeds=(0,)).runs()
    source = StudySource()
    model = source.model(run, source.task(run))
    layers = [module for module in model.modules() if isinstance(module, NewtonNorm)]
    assert len(layers) == 2
    learned, closed = NEWTONS[name]
    assert all(isinstance(layer.phi, nn.Parameter) == learned and layer.closed == closed for layer in layers)


@pytest.mark.parametrize("phi", [1.7, 2.0, 2.6])
def test_newton_in_closed_form_has_the_derivatives_of_the_center(phi: float) -> None:
    """Where eight steps converge, recorded steps and closed form agree, for x and for φ."""
    torch.manual_seed(0)
    x, push = torch.randn(40, 3).double(), torch.randn(40, 3).double()
    found = []
    for closed in (False, True):
        layer = NewtonNorm(3, phi, learned=True, closed=closed).double()
        data = x.clone().requires_grad_()
        (layer(data) * push).sum().backward()
        assert isinstance(layer.phi, nn.Parameter)
        found.append((data.grad, layer.phi.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(32, 3), (16, 3, 4, 4)])
def test_the_joint_norm_is_batch_norm_around_the_joint_center(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    x[:3] += 50.0
    layer, dims = JointNorm(3), [0, *range(2, len(shape))]
    y, center = layer(x), joint_center(x)
    torch.testing.assert_close(0.1 * center, layer.running_center, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(y.square().mean(dims), torch.ones(3), rtol=1e-4, atol=0)
    assert (center.abs() < 1).all(), "three of the samples do not pull it away, as they do the mean"
    torch.testing.assert_close(layer.eval()(x).mean(dims), (0.9 + 0.1 * _spread(x, center)).rsqrt() * _off(x, center))


def _spread(x: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
    shape = [1, -1, *[1] * (x.dim() - 2)]
    return (x - center.view(shape)).square().transpose(0, 1).flatten(1).mean(1)


def _off(x: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).flatten(1).mean(1) - 0.1 * center


def test_the_joint_norm_of_equal_samples_is_finite() -> None:
    x = torch.zeros(4, 3, requires_grad=True)
    y = JointNorm(3)(x)
    y.sum().backward()
    assert x.grad is not None
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def test_the_joint_norm_is_a_norm_of_studies_alone() -> None:
    (run,) = StudyRecipe(norms=("joint",), seeds=(0,)).runs()
    source = StudySource()
    model = source.model(run, source.task(run))
    assert sum(isinstance(module, JointNorm) for module in model.modules()) == 2


@pytest.mark.parametrize(("norm", "groups"), [("ws_gn", 8), ("ws_gn(groups=4)", 4)])
def test_weight_standardization_with_group_norm(norm: str, groups: int) -> None:
    """Rows of mean 0 and variance 1 whatever the weights, and a GroupNorm after each convolution."""
    options = {"model": "resnet20", "model_options": {"width": 0.5, "depth": 0.34}}
    (run,) = StudyRecipe(data="stripes", norms=(norm,), seeds=(0,), **options).runs()
    source = StudySource()
    task = source.task(run)
    model = source.model(run, task)
    x = task.test.sample(8).tensor()
    before = model(x)
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    with torch.no_grad():
        for module in convolutions:
            module.parametrizations.weight.original.mul_(3.0)
    torch.testing.assert_close(model(x), before, rtol=1e-3, atol=1e-3)
    rows = [module.weight.flatten(1) for module in convolutions]
    assert all(torch.allclose(row.mean(1), torch.zeros(()), atol=1e-5) for row in rows)
    assert all(torch.allclose(row.var(1, correction=0), torch.ones(()), atol=1e-3) for row in rows)
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm)]
    assert len(norms) == len(convolutions)
    assert norms[0].num_groups == groups
