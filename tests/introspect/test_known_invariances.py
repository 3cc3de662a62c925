"""The table is asked without data: it must never call a weight invariant that is not."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import geonorm
from geonorm.analysis import invariance
from geonorm.introspect.scale_parts import Parts, parts_by_table, per_value


class PlusOne(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight + 1


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).tanh())


def parametrized() -> nn.Module:
    linear = nn.Linear(6, 8)
    parametrize.register_parametrization(linear, "weight", PlusOne())
    return linear


def frozen() -> nn.Module:
    model = net(nn.Linear(6, 8), nn.BatchNorm1d(8))
    geonorm.freeze(model)
    return model.train()


def in_evaluation() -> nn.Module:
    model = net(nn.Linear(6, 8), nn.BatchNorm1d(8))
    model[1].eval()
    return model


def net(operation: nn.Module, norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(operation, norm, nn.Tanh())


FLAT, LINES, IMAGES = (16, 6), (16, 5, 6), (8, 4, 6, 6)
# name: (model, shape of a batch, what the table may say about each weight: kind, with its bias)
CASES = {
    "frozen": (frozen, FLAT, []),
    "norm in evaluation": (in_evaluation, FLAT, []),
    "alpha": (lambda: net(nn.Linear(6, 8), geonorm.AugBatchNorm1d(8, alpha=0.5)), FLAT, [("row", True)]),
    "learned alpha": (
        lambda: net(nn.Linear(6, 8), geonorm.AugBatchNorm1d(8, alpha=0.7, learn_alpha=True)),
        FLAT,
        [("row", True)],
    ),
    "graphs": (lambda: net(nn.Linear(6, 8), geonorm.AugGraphNorm(8, learn_alpha=False)), FLAT, [("row", False)]),
    "graphs, learned alpha": (
        lambda: net(nn.Linear(6, 8), geonorm.AugGraphNorm(8, learn_alpha=True)),
        FLAT,
        [("row", True)],
    ),
    "learned alpha from 1": (
        lambda: net(nn.Linear(6, 8), geonorm.AugBatchNorm1d(8, learn_alpha=True)),
        FLAT,
        [("row", True)],
    ),
    "tied": (Tied, FLAT, []),
    "unknown parametrization": (lambda: net(parametrized(), nn.BatchNorm1d(8)), FLAT, []),
    "weight norm along inputs": (
        lambda: net(parametrizations.weight_norm(nn.Linear(6, 8), dim=1), nn.BatchNorm1d(8)),
        FLAT,
        [("matrix", False)],
    ),
    "weight norm as a whole": (
        lambda: net(parametrizations.weight_norm(nn.Linear(6, 8), dim=None), nn.Identity()),
        FLAT,
        [("matrix", False)],
    ),
    "transposed with groups": (
        lambda: net(nn.ConvTranspose2d(4, 8, 3, groups=2), nn.GroupNorm(4, 8)),
        IMAGES,
        [("matrix", True)],
    ),
    "lines into a batch norm": (lambda: net(nn.Linear(6, 8), nn.BatchNorm1d(5)), LINES, []),
    "lines into an instance norm": (lambda: net(nn.Linear(6, 8), nn.InstanceNorm1d(8)), (16, 8, 6), []),
    "lines into groups": (lambda: net(nn.Linear(6, 8), nn.GroupNorm(2, 4)), (16, 4, 6), []),
    "images into a batch norm": (lambda: net(nn.Linear(6, 8), nn.BatchNorm2d(4)), IMAGES, []),
    "batch norm": (lambda: net(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)), IMAGES, [("row", False)]),
}


def change(model: nn.Module, parts: list[Parts], x: Tensor) -> float:
    """Of the outputs, without eps, when each part is scaled by itself."""
    for module in model.modules():
        if isinstance(getattr(module, "eps", None), float):
            module.eps = 1e-18
    with torch.no_grad():
        before = model(x)
        for part in parts:
            factors = torch.linspace(0.5, 2.0, part.number, dtype=torch.float64)
            factors = factors if part.number > 1 else factors + 1
            for tensor, dim in part.members(model):
                tensor.mul_(per_value(factors, tensor, dim))
        return float((model(x) - before).abs().max())


@pytest.mark.parametrize("name", CASES)
def test_what_the_table_says_is_true(name: str) -> None:
    torch.manual_seed(0)
    make, shape, expected = CASES[name]
    model = make().double()
    parts = parts_by_table(model)
    assert [(part.kind, part.bias is not None) for part in parts] == expected
    assert change(model, parts, torch.randn(shape, dtype=torch.float64)) < 1e-8


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_the_table_and_trying_agree_on_the_bias_too(name: str) -> None:
    torch.manual_seed(0)
    make, shape, _ = CASES[name]
    found = invariance(make(), torch.randn(shape))
    assert found.surprises() == []
    (unit,) = [unit for unit in found.units if unit.expected is not None]
    assert unit.bias == unit.expected_bias
    other = unit._replace(expected_bias="another")
    assert type(found)([other], [], []).surprises() == [other]


def test_a_bias_of_zeros_hides_nothing() -> None:
    model = net(nn.Linear(6, 8), nn.LayerNorm(8))
    nn.init.zeros_(model[0].bias)
    (unit,) = invariance(model, torch.randn(16, 6)).units
    assert unit.bias == "0.bias"


def test_a_model_in_evaluation_has_no_spheres_and_says_so() -> None:
    model = net(nn.Linear(6, 8), nn.BatchNorm1d(8)).eval()
    with pytest.warns(UserWarning, match=r"model\.train\(\)"):
        assert parts_by_table(model) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(parts_by_table(model.train())) == 1
