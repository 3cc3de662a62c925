"""Models from outside this project, small enough for tests, each with a maker of inputs."""

import copy
import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn


class Outside(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


def images(number: int = 2, size: int = 32) -> tuple[Tensor, ...]:
    return (torch.randn(number, 3, size, size),)


def pytorchcv(family: str, name: str, **arguments) -> nn.Module:
    module = pytest.importorskip(f"pytorchcv.models.{family}")
    return getattr(module, name)(**arguments)


def small_densenet() -> nn.Module:
    module = pytest.importorskip("pytorchcv.models.densenet_cifar")
    return module.CIFARDenseNet(
        channels=[[16, 20], [22, 26]], init_block_channels=8, bottleneck=False, in_size=(16, 16), num_classes=10
    )


def small_wrn() -> nn.Module:
    module = pytest.importorskip("pytorchcv.models.wrn_cifar")
    return module.CIFARWRN(channels=[[16, 16], [32, 32], [32]], init_block_channels=8, num_classes=10)


def small_vgg() -> nn.Module:
    module = pytest.importorskip("pytorchcv.models.vgg")
    return module.VGG(channels=[[8], [16], [16, 16]], use_bn=True, in_size=(56, 56), num_classes=10)


def graph_net() -> nn.Module:
    geometric = pytest.importorskip("torch_geometric.nn")
    return geometric.GCN(6, 16, 2, out_channels=4, norm="batch_norm")


def graphs() -> tuple[Tensor, ...]:
    edges = torch.randint(0, 30, (2, 120), generator=torch.Generator().manual_seed(5))
    return torch.randn(30, 6), edges


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


class Nested(nn.Module):
    """Norms deep inside, one of them in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(3, 8, 3), nn.Sequential(nn.BatchNorm1d(8), nn.ReLU()))
        self.shared = nn.BatchNorm1d(8)
        self.twice = nn.ModuleDict({"a": self.shared, "b": nn.GroupNorm(2, 8), "c": nn.InstanceNorm1d(8, affine=True)})

    def forward(self, x: Tensor) -> Tensor:
        y = self.shared(self.first(x))
        return self.twice["c"](self.twice["b"](self.twice["a"](y)))


OUTSIDE = [
    Outside("resnet20", lambda: pytorchcv("resnet_cifar", "resnet20_cifar10"), images),
    Outside("densenet", small_densenet, lambda: images(size=16)),
    Outside("wrn", small_wrn, images),
    Outside("gcn", graph_net, graphs),
    Outside("transformer", encoder, lambda: (torch.randn(3, 7, 16),)),
    Outside("nested", Nested, lambda: (torch.randn(5, 3, 11),)),
]
BATCH_NORMED = [case for case in OUTSIDE if case.name not in ("transformer", "nested")]


def trained(case: Outside) -> nn.Module:
    """A model whose statistics and parameters are not those of its first moment."""
    return copy.deepcopy(_trained(case))


@functools.cache
def _trained(case: Outside) -> nn.Module:
    torch.manual_seed(0)
    model = case.make()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(*case.inputs()).square().mean().backward()
        optimizer.step()
    return model
