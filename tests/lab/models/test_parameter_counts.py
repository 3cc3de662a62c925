"""Parameters of the networks at the papers' sizes, against published counts and against pytorchcv's definitions."""

import pytest
import torch

from geonorm.lab.models import create_model

# With BatchNorm and 10 classes, as reported for kuangliu/pytorch-cifar.
CIFAR = {
    "resnet18": 11_173_962,
    "resnet101": 42_512_970,
    "vgg16": 14_728_266,
    "vgg19": 20_040_522,
    "resnet20": 269_722,  # He et al.: 0.27M; shortcuts without parameters
}
# torchvision's, with the stem of ImageNet and 1000 classes.
IMAGENET = {"resnet18": 11_689_512, "resnet101": 44_549_160}


def count(name: str, **options) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in create_model(name, **options).parameters())


@pytest.mark.parametrize("name", CIFAR)
def test_cifar(name: str) -> None:
    assert count(name) == CIFAR[name]


@pytest.mark.parametrize("name", IMAGENET)
def test_imagenet(name: str) -> None:
    assert count(name, classes=1000, stem="imagenet") == IMAGENET[name]


def test_against_other_definitions() -> None:
    resnet_cifar = pytest.importorskip("pytorchcv.models.resnet_cifar")
    resnet = pytest.importorskip("pytorchcv.models.resnet")
    with torch.device("meta"):
        theirs = {
            "resnet18": sum(p.numel() for p in resnet.resnet18().parameters()),
            "resnet101": sum(p.numel() for p in resnet.resnet101b().parameters()),
        }
        # pytorchcv's has a 1×1 convolution with BatchNorm in two shortcuts, He's for CIFAR has none.
        projections = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
        resnet20 = sum(p.numel() for p in resnet_cifar.resnet20_cifar10().parameters())
    assert {name: count(name, classes=1000, stem="imagenet") for name in theirs} == theirs
    assert count("resnet20") == resnet20 - projections


def test_graph_networks() -> None:
    """Counted by hand: five convolutions of 64 on 7 features, norms with two parameters each, a head."""
    head = 64 * 2 + 2
    assert count("gcn", classes=2) == (7 * 64 + 64) + 4 * (64 * 64 + 64) + 5 * 2 * 64 + head
    perceptron = 64 * 64 + 64
    assert count("gin", classes=2) == (7 * 64 + 64) + 9 * perceptron + 10 * 2 * 64 + head
    # The published code's 4 convolutions.
    assert count("gcn", classes=2, layers=4) == count("gcn", classes=2) - (64 * 64 + 64) - 2 * 64
