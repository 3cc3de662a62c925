"""Networks of the studies: parameters as published, and what sets them apart; tests/lab/models trains them."""

import pytest
import torch
from torch import nn

from geonorm.lab.models import create_model
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
