"""Planted faults that appear when a network is used: in its data, its outputs, its signal and its training.

Part of ``faults.py``, which runs them. Networks are small and fixed; ``random_faults.py`` uses random ones.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Planted = tuple[nn.Module, list[Any]]


class InUse(NamedTuple):
    """A fault: the change, the expected kind of finding, the layer it should name, and options of ``diagnose``."""

    what: str
    kind: str
    layer: str
    plant: Callable[[], Planted]
    fix: str
    options: Mapping[str, Any] = MappingProxyType({})


def points(number: int, seed: int, classes: int = 5, features: int = 24) -> tuple[Tensor, Tensor]:
    """Tabular data: classes around random points."""
    places = 0.6 * torch.randn(classes, features, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (number,), generator=generator)
    return places[labels] + torch.randn(number, features, generator=generator), labels


def sequences(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sequences of 12 vectors; their mean determines the class."""
    x, labels = points(number, seed, features=16)
    noise = torch.randn(number, 12, 16, generator=torch.Generator().manual_seed(seed + 1))
    return x[:, None] + noise, labels


def train(model: nn.Module, data: Callable[[int, int], tuple[Tensor, Tensor]] = points, steps: int = 150) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(steps):
        x, labels = data(64, step + 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model


def block(norm: nn.Module, activation: nn.Module, width: int = 32, into: int = 24) -> list[nn.Module]:
    return [nn.Linear(into, width, bias=False), norm, activation]


class Residual(nn.Module):
    """A stem and two residual branches, each with a norm at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(24, 32, bias=False)
        self.norm = nn.BatchNorm1d(32)
        self.first = nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32))
        self.second = nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32))
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        x = (x + self.first(x)).relu()
        return self.head((x + self.second(x)).relu())


class Tokens(nn.Module):
    """A projection of each vector of a sequence, a norm over it, and the mean of all."""

    def __init__(self, norm: nn.Module, channels: int | None = None) -> None:
        super().__init__()
        self.into, self.norm, self.head = nn.Linear(16, 32), norm, nn.Linear(32, 5)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        x = self.norm(x) if self.channels is None else self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(x.relu().mean(1))


@functools.cache
def _trained(name: str) -> nn.Module:
    torch.manual_seed(0)
    makers: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: nn.Sequential(
            *block(nn.BatchNorm1d(32), nn.ReLU()), *block(nn.BatchNorm1d(32), nn.ReLU(), into=32), nn.Linear(32, 5)
        ),
        "tanh": lambda: nn.Sequential(
            *block(nn.BatchNorm1d(32), nn.Tanh()), *block(nn.BatchNorm1d(32), nn.Tanh(), into=32), nn.Linear(32, 5)
        ),
        "sigmoid": lambda: nn.Sequential(*block(nn.BatchNorm1d(32), nn.Sigmoid()), nn.Linear(32, 5)),
        "layernorm": lambda: nn.Sequential(
            nn.Linear(24, 32),
            nn.LayerNorm(32),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.LayerNorm(32),
            nn.ReLU(),
            nn.Linear(32, 5),
        ),
        "dropout": lambda: nn.Sequential(
            nn.Linear(24, 32),
            nn.ReLU(),
            nn.Dropout(0.6),
            nn.Linear(32, 32, bias=False),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 5),
        ),
        "logits": lambda: nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 5, bias=False), nn.BatchNorm1d(5)),
        "residual": Residual,
        "tokens": lambda: Tokens(nn.BatchNorm1d(32), 1),
        "wrong": lambda: Tokens(nn.BatchNorm1d(12)),
    }
    data = sequences if name in ("tokens", "wrong") else points
    return train(makers[name](), data)


def trained(name: str, batches: int = 4) -> Planted:
    """A trained network, and labelled batches for it."""
    data = sequences if name in ("tokens", "wrong") else points
    return copy.deepcopy(_trained(name)), [data(64, 1000 + i) for i in range(batches)]


def _with(name: str, change: Callable[[Any, list[Any]], Any]) -> Callable[[], Planted]:
    """A trained network, changed by ``change``, which may return new batches."""

    def plant() -> Planted:
        model, batches = trained(name)
        with torch.no_grad():
            given = change(model, batches)
        return model, batches if not isinstance(given, list) else given

    return plant


def _lose(model: nn.Module, batches: list[Any]) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.reset_running_stats()


def _scaled(factor: float, offset: float = 0.0, labelled: bool = True) -> Callable[[Any, list[Any]], list[Any]]:
    def change(model: nn.Module, batches: list[Any]) -> list[Any]:
        model.eval()
        return [(factor * x + offset, y) if labelled else factor * x + offset for x, y in batches]

    return change


def _sort(labelled: bool) -> Callable[[Any, list[Any]], list[Any]]:
    def change(model: nn.Module, batches: list[Any]) -> list[Any]:
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        order = y.argsort(stable=True)
        pairs = zip(x[order].split(50), y[order].split(50), strict=True)
        return [(a, b) if labelled else a for a, b in pairs]

    return change


def _pad(model: nn.Module, batches: list[Any]) -> list[Any]:
    found = []
    for x, y in batches:
        keep = torch.arange(12)[None] < torch.randint(4, 13, (len(x), 1), generator=torch.Generator().manual_seed(0))
        found.append((x * keep[..., None], y))
    return found


def _freeze_affine(model: Any, batches: list[Any]) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.weight.requires_grad_(False)
            module.bias.requires_grad_(False)


def _half(model: Any, batches: list[Any]) -> list[Any]:
    model[3].weight.mul_(1e5)
    model[6].weight.mul_(1e-3)
    model.half()
    return [(x.half(), y) for x, y in batches]


def _stop_branches(model: Any, batches: list[Any]) -> None:
    for branch in (model.first, model.second):
        branch[1].weight.zero_()
        branch[1].bias.zero_()


_RECALIBRATE = "geonorm.recalibrate(model, batches)"

IN_USE = [
    InUse("inputs times 0.5 in evaluation", "stale statistics", "1", _with("mlp", _scaled(0.5)), _RECALIBRATE),
    InUse(
        "inputs times 3, without labels",
        "stale statistics",
        "1",
        _with("mlp", _scaled(3, labelled=False)),
        _RECALIBRATE,
    ),
    InUse("inputs shifted by 2", "stale statistics", "1", _with("mlp", _scaled(1, 2)), _RECALIBRATE),
    InUse(
        "statistics lost, in evaluation",
        "lost statistics",
        "1",
        _with("mlp", lambda m, b: (_lose(m, b), m.eval())),
        _RECALIBRATE,
    ),
    InUse("statistics lost, in training", "lost statistics", "1", _with("mlp", _lose), _RECALIBRATE),
    InUse(
        "γ is 1e-6 in half of the channels",
        "collapsed channels",
        "1",
        _with("mlp", lambda m, b: m[1].weight[:16].fill_(1e-6)),
        "model[1].weight.data[:16] = 1.0",
    ),
    InUse(
        "γ is 1e-6 in all channels but one",
        "collapsed channels",
        "4",
        _with("mlp", lambda m, b: m[4].weight[1:].fill_(1e-6)),
        "model[4].weight.data.fill_(1.0)",
    ),
    InUse(
        "γ is 1e-7 in all channels",
        "collapsed channels",
        "1",
        _with("mlp", lambda m, b: m[1].weight.fill_(1e-7)),
        "model[1].weight.data.fill_(1.0)",
    ),
    InUse(
        "γ of a LayerNorm is 0 in a third of the features",
        "collapsed channels",
        "1",
        _with("layernorm", lambda m, b: m[1].weight[:10].zero_()),
        "model[1].weight.data.fill_(1.0)",
    ),
    InUse(
        "γ of a channel times 100",
        "exploded gamma",
        "4",
        _with("mlp", lambda m, b: m[4].weight[2].mul_(100)),
        "model[4].weight.data[2] /= 100",
    ),
    InUse(
        "all γ times 200",
        "exploded gamma",
        "1",
        _with("mlp", lambda m, b: m[1].weight.mul_(200)),
        "model[1].weight.data /= 200",
    ),
    InUse(
        "tanh saturated by large γ",
        "saturated",
        "1",
        _with("tanh", lambda m, b: m[1].weight.mul_(15)),
        "model[1].weight.data /= 15",
    ),
    InUse(
        "sigmoid saturated by large β",
        "saturated",
        "1",
        _with("sigmoid", lambda m, b: m[1].bias.add_(9)),
        "model[1].bias.data -= 9",
    ),
    InUse(
        "one feature of a LayerNorm's input at 60",
        "one feature",
        "1",
        _with("layernorm", lambda m, b: m[0].bias[3].fill_(60)),
        "model[0].bias.data[3] = 0.0",
    ),
    InUse(
        "eps of a LayerNorm is 5",
        "eps dominates",
        "4",
        _with("layernorm", lambda m, b: setattr(m[4], "eps", 5.0)),
        "model[4].eps = 1e-5",
    ),
    InUse(
        "momentum is 1e-4",
        "momentum",
        "1",
        _with("mlp", lambda m, b: setattr(m[1], "momentum", 1e-4)),
        "model[1].momentum = 0.1",
    ),
    InUse(
        "momentum is 0.99",
        "momentum",
        "4",
        _with("mlp", lambda m, b: setattr(m[4], "momentum", 0.99)),
        "model[4].momentum = 0.1",
    ),
    InUse("a BatchNorm on the logits", "norm on the logits", "3", lambda: trained("logits"), "model = model[:3]"),
    InUse(
        "dropout of 0.6 in front of a BatchNorm",
        "variance shift",
        "4",
        lambda: trained("dropout"),
        "model[2] = nn.Identity()",
    ),
    InUse(
        "a BatchNorm over the positions of a sequence",
        "wrong axis",
        "norm",
        lambda: trained("wrong"),
        "model.norm, model.channels = nn.BatchNorm1d(32), 1\ngeonorm.recalibrate(model, batches)",
    ),
    InUse(
        "inputs from 0 to 255 into a LayerNorm network",
        "input not normalized",
        "(batches)",
        _with("layernorm", lambda m, b: [((x - x.min()) * 20, y) for x, y in b]),
        "batches = [((x - x.mean()) / x.std(), y) for x, y in batches]",
    ),
    InUse(
        "batches sorted by class, with labels",
        "sorted batches",
        "(batches)",
        _with("mlp", _sort(True)),
        "x, y = (torch.cat(part) for part in zip(*batches))\norder = torch.randperm(len(x))\n"
        "batches = list(zip(x[order].split(64), y[order].split(64)))",
    ),
    InUse(
        "batches sorted by class, without labels",
        "sorted batches",
        "(batches)",
        _with("mlp", _sort(False)),
        "x = torch.cat(batches)\nbatches = list(x[torch.randperm(len(x))].split(64))",
    ),
    InUse(
        "padding in half of the positions",
        "padding counts",
        "norm",
        _with("tokens", _pad),
        "model.norm, model.channels = nn.LayerNorm(32), None",
    ),
    InUse(
        "γ and β frozen, statistics moving", "half frozen", "1", _with("mlp", _freeze_affine), "geonorm.freeze(model)"
    ),
    InUse(
        "activations too large for float16",
        "overflow",
        "3",
        _with("layernorm", _half),
        "model = model.float()\nbatches = [(x.float(), y) for x, y in batches]",
    ),
    InUse(
        "residual branches with γ = 0 after training",
        "silent branches",
        "first.1",
        _with("residual", _stop_branches),
        "model.first[1].weight.data.fill_(1.0)\nmodel.second[1].weight.data.fill_(1.0)",
    ),
    InUse(
        "weights 70 times as long, at lr=0.001",
        "huge weights",
        "0",
        _with("mlp", lambda m, b: m[0].weight.mul_(70)),
        "project_scale_invariant(model.train(), radius=1.0)\ngeonorm.recalibrate(model, batches)",
        {"lr": 1e-3},
    ),
    InUse(
        "one BatchNorm for two unlike places",
        "shared norm",
        "1",
        _with("mlp", lambda m, b: (m[3].weight.mul_(4), m.__setitem__(4, m[1]))),
        "model[4] = nn.BatchNorm1d(32)\ngeonorm.recalibrate(model, batches)",
    ),
]

HEALTHY_IN_USE = ("mlp", "tanh", "sigmoid", "layernorm", "residual", "tokens")
