"""Networks of the studies: parameters as published, and what sets them apart; tests/lab/models trains them."""

import pytest
import torch
from torch import nn

from geonorm.lab.models import create_model
from studies.models.newton import NewtonNorm
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


def test_newton_is_a_norm_of_studies_alone() -> None:
    (run,) = StudyRecipe(norms=("newton",), seeds=(0,)).runs()
    source = StudySource()
    model = source.model(run, source.task(run))
    layers = [module for module in model.modules() if isinstance(module, NewtonNorm)]
    assert len(layers) == 2
    assert all(isinstance(layer.phi, nn.Parameter) for layer in layers)


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
