"""Networks that take the normalization as an argument."""

from .create import Model, create_model, models, register, why_not
from .deep_resnet import DeepResNet
from .graph import GraphNet
from .mlp import MLP
from .parts import ACTIVATIONS, make_activation
from .resnet import CifarResNet, resnet20
from .vgg import VGG

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "VGG",
    "CifarResNet",
    "DeepResNet",
    "GraphNet",
    "Model",
    "create_model",
    "make_activation",
    "models",
    "register",
    "resnet20",
    "why_not",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
