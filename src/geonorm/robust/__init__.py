"""Tools for robust training and evaluation: losses over the worst samples, accuracy per group, noise and attacks; and
``screen``, which finds the broken samples of a data set.
"""

from .accuracy import Accuracy, accuracy, wilson
from .attacks import bim, fgsm, pgd
from .groups import GroupAccuracy, group_accuracy
from .losses import RobustLoss, chi_square, chi_square_doro, cvar, cvar_doro, erm
from .noise import gaussian_noise
from .screen import screen
from .screening import Broken, Screening
from .standardize import Standardize

__all__ = [
    "Accuracy",
    "Broken",
    "GroupAccuracy",
    "RobustLoss",
    "Screening",
    "Standardize",
    "accuracy",
    "bim",
    "chi_square",
    "chi_square_doro",
    "cvar",
    "cvar_doro",
    "erm",
    "fgsm",
    "gaussian_noise",
    "group_accuracy",
    "pgd",
    "screen",
    "wilson",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
