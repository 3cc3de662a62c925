"""What a network withstands: noise, attacks, and how sure an accuracy is."""

from .accuracy import Accuracy, accuracy, wilson
from .attacks import bim, fgsm, pgd
from .noise import gaussian_noise
from .standardize import Standardize

__all__ = ["Accuracy", "Standardize", "accuracy", "bim", "fgsm", "gaussian_noise", "pgd", "wilson"]
