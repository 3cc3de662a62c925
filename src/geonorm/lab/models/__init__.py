"""Networks with a normalization as an argument."""

from .resnet import CifarResNet, resnet20

__all__ = ["CifarResNet", "resnet20"]
