"""A small network and a few steps of training under a monitor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geonorm.analysis import Monitor

WIDTH = 6


def seeded_randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small_net(norm: nn.Module | None = None, bias: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(WIDTH, eps=1e-12) if norm is None else norm
    return nn.Sequential(nn.Linear(4, WIDTH, bias=bias), norm, nn.ReLU(), nn.Linear(WIDTH, 3)).double()


def train_steps(model: nn.Module, monitor: Monitor | None, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    for step in range(steps):
        x, y = seeded_randn(16, 4, seed=step), torch.randint(3, (16,), generator=torch.Generator().manual_seed(step))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(loss)


def sgd(model: nn.Module, **options: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def records_of_steps(optimizer_of, *, closure: bool = True, steps: int = 2, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-12), nn.Linear(6, 3)).double()
    optimizer = optimizer_of(model.parameters())

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = model(torch.randn(16, 4).double()).square().mean()
        value.backward()
        return value

    with Monitor(model, optimizer, every=1, **options) as monitor:
        for _ in range(steps):
            if closure:
                optimizer.step(loss)
            else:
                loss()
                optimizer.step()
            monitor.step()
    return monitor.result().records
