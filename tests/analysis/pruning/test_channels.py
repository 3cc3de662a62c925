"""A mask leaves out the channels that it names, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import geonorm
from geonorm.analysis import Drop, prune
from geonorm.analysis.pruning.channels import masked


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net(width: int = 8, norm: str = "bn") -> nn.Sequential:
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
        model(randn(64, 6, seed=7))
    with torch.no_grad():  # classes in balance and borders among the data: what is left out shows
        scores = model.eval()(randn(64, 6, seed=7))
        model[6].bias -= scores.mean(0)
    return model.train()


def test_a_mask_is_what_it_says() -> None:
    model = net().eval()
    x = randn(5, 6)
    plain = model[1](model[0](x))
    with masked(model, [Drop("1", 3), Drop("1", 0, 7)]):
        seen = model[1](model[0](x))
    expected = plain.clone()
    expected[:, 3], expected[:, 0] = 0, plain[:, 7]
    assert torch.equal(seen, expected)
    assert torch.equal(model[1](model[0](x)), plain)


def test_compiled_models_are_masked_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        model[1].bias.normal_()
    x = torch.randn(64, 4)
    batch = (x, model(x).argmax(1))
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    plain, found = (prune(m, batch, (0.0, 0.8), ("gamma",)) for m in (model, compiled))
    assert plain.trials[1].accuracy.share < 1
    assert [trial.accuracy for trial in found.trials] == [trial.accuracy for trial in plain.trials]
