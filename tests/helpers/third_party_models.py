"""Small models of other libraries, and one nested on purpose, each with a maker of inputs."""

import copy
import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn


class ThirdPartyModel(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


def image_batch(number: int = 2, size: int = 32) -> tuple[Tensor, ...]:
    return (torch.randn(number, 3, size, size),)


def pytorchcv_model(family: str, name: str, **arguments) -> nn.Module:
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


def graph_batch() -> tuple[Tensor, ...]:
    edges = torch.randint(0, 30, (2, 120), generator=torch.Generator().manual_seed(5))
    return torch.randn(30, 6), edges


def transformer_encoder() -> nn.Module:
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


THIRD_PARTY_MODELS = [
    ThirdPartyModel("resnet20", lambda: pytorchcv_model("resnet_cifar", "resnet20_cifar10"), image_batch),
    ThirdPartyModel("densenet", small_densenet, lambda: image_batch(size=16)),
    ThirdPartyModel("wrn", small_wrn, image_batch),
    ThirdPartyModel("gcn", graph_net, graph_batch),
    ThirdPartyModel("transformer", transformer_encoder, lambda: (torch.randn(3, 7, 16),)),
    ThirdPartyModel("nested", Nested, lambda: (torch.randn(5, 3, 11),)),
]
WITH_BATCH_NORM = [case for case in THIRD_PARTY_MODELS if case.name not in ("transformer", "nested")]


def briefly_trained(case: ThirdPartyModel) -> nn.Module:
    """A copy after two steps of SGD: its statistics and parameters have left their starting values."""
    return copy.deepcopy(_briefly_trained(case))


@functools.cache
def _briefly_trained(case: ThirdPartyModel) -> nn.Module:
    torch.manual_seed(0)
    model = case.make()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(*case.inputs()).square().mean().backward()
        optimizer.step()
    return model
