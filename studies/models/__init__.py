"""Networks that only studies use; ``register_all`` makes them known to the lab."""

from __future__ import annotations

from geonorm.lab.models import Model, register
from geonorm.lab.models.create import on_images

from .densenet import DenseNet121
from .efficientnet import EfficientNetB0
from .mobilenet import MobileNetV2

_CIFAR = (3, 32, 32)


def register_all() -> None:
    """Make the networks known by their names."""
    stem = "3×3 stem of stride 1"
    register(Model("mobilenetv2", f"MobileNet-V2, {stem}", on_images(MobileNetV2), "images", _CIFAR))
    register(Model("densenet121", f"DenseNet-121, {stem}", on_images(DenseNet121), "images", _CIFAR, norms_first=True))
    register(Model("efficientnetb0", f"EfficientNet-B0, {stem}", on_images(EfficientNetB0), "images", _CIFAR, "silu"))
