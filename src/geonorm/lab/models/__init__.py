"""Networks that take the normalization as an argument."""

from .create import create_model, models, why_not
from .deep_resnet import DeepResNet
from .densenet import DenseNet121
from .efficientnet import EfficientNetB0
from .graph import GraphNet
from .mlp import MLP
from .mobilenet import MobileNetV2
from .newton import NewtonNorm
from .parts import ACTIVATIONS, make_activation
from .resnet import CifarResNet, resnet20
from .vgg import VGG

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "VGG",
    "CifarResNet",
    "DeepResNet",
    "DenseNet121",
    "EfficientNetB0",
    "GraphNet",
    "MobileNetV2",
    "NewtonNorm",
    "create_model",
    "make_activation",
    "models",
    "resnet20",
    "why_not",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
