"""What a robust run needs beside the layer: losses over the worst samples, and accuracy per group."""

from .groups import GroupAccuracy, group_accuracy
from .losses import RobustLoss, chi_square, chi_square_doro, cvar, cvar_doro, erm

__all__ = [
    "GroupAccuracy",
    "RobustLoss",
    "chi_square",
    "chi_square_doro",
    "cvar",
    "cvar_doro",
    "erm",
    "group_accuracy",
]
