"""Inputs standardized inside the model: attacks act on the original images."""

import pytest
import torch
from torch import Tensor, nn

from geonorm.robust import Standardize, fgsm


def net(norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)] if norm else [nn.Conv2d(2, 6, 3)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)).double()


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(5, 2, 6, 6, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])


def test_standardized_inputs_inside_the_model() -> None:
    """The attack on images in [0, 1] is that on standardized inputs, in the units of the image."""
    model, (x, labels) = net().eval(), data()
    mean, std = [0.4, 0.6], [0.2, 0.3]
    whole = nn.Sequential(Standardize(mean, std), model)
    scale = torch.tensor(std, dtype=torch.float64).view(2, 1, 1)
    shifted = (x - torch.tensor(mean, dtype=torch.float64).view(2, 1, 1)) / scale
    torch.testing.assert_close(whole(x), model(shifted))
    inside = x.clamp(0.1, 0.9)
    standard = (inside - torch.tensor(mean, dtype=torch.float64).view(2, 1, 1)) / scale
    signs = (fgsm(model, standard, labels, 1e-3, between=(-9, 9)) - standard).sign()
    torch.testing.assert_close(fgsm(whole, inside, labels, 0.05), inside + 0.05 * signs)
    assert whole.state_dict().keys() == nn.Sequential(nn.Identity(), model).state_dict().keys()
    with pytest.raises(ValueError, match="std > 0"):
        Standardize([0.5], [0.0])
