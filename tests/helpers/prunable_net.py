"""A network whose channels all matter, with statistics and affine parameters away from their start."""

from __future__ import annotations

import torch
from torch import nn

import geonorm
from helpers.float64_classifier import seeded_randn64


def prunable_net(width: int = 8, norm: str = "bn") -> nn.Sequential:
    """Two hidden layers with statistics and affine parameters away from their start."""
    torch.manual_seed(0)
    make = geonorm.create_norm(norm, dim=1)
    model = nn.Sequential(
        nn.Linear(6, width), make(width), nn.ReLU(), nn.Linear(width, width), make(width), nn.ReLU(),
        nn.Linear(width, 3),
    ).double()  # fmt: skip
    for norm_layer in (model[1], model[4]):
        norm_layer.weight.data = 0.5 + torch.rand(width).double()
        norm_layer.bias.data = 0.5 * torch.randn(width).double()
    for _ in range(30):
        model(seeded_randn64(64, 6, seed=7))
    with torch.no_grad():  # classes in balance and borders among the data: what is left out shows
        scores = model.eval()(seeded_randn64(64, 6, seed=7))
        model[6].bias -= scores.mean(0)
    return model.train()
