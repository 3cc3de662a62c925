"""Reading a network: one file per diagnostic, each a function of a model and data that returns a plain result."""

from .channels import Drop
from .curvature import Block, Curvature, curvature
from .growth import Monitor
from .growth_log import Growth
from .invariance import Invariance, Unit, invariance
from .kappa_slopes import KappaSlopes, Slope, kappa_slopes
from .prune import Pair, PruneTrial, Pruning, prune
from .remove_channels import remove_channels
from .rescaling import Rescaled, Rescaling, rescaling
from .robustness import Robustness, Trial, robustness

__all__ = [
    "Block",
    "Curvature",
    "Drop",
    "Growth",
    "Invariance",
    "KappaSlopes",
    "Monitor",
    "Pair",
    "PruneTrial",
    "Pruning",
    "Rescaled",
    "Rescaling",
    "Robustness",
    "Slope",
    "Trial",
    "Unit",
    "curvature",
    "invariance",
    "kappa_slopes",
    "prune",
    "remove_channels",
    "rescaling",
    "robustness",
]
