"""Diagnostics of a network: one file each, with a function of a model and data that returns a plain result."""

import warnings
from typing import Any

from ..introspect.invariance import Unit
from .activation_effect import ActivationEffect, OperationInput, activation_effect
from .batch_width import BatchWidth, Width, batch_width
from .curvature import Block, Curvature, curvature
from .diagnose import Diagnosis, Finding, diagnose
from .growth import Growth, Monitor
from .invariance import Invariance, invariance
from .kappa_slopes import KappaSlopes, Slope, kappa_slopes
from .pruning import Drop, Pair, PruneTrial, Pruning, prune, remove_channels
from .rescaling import Rescaled, Rescaling, rescaling
from .robustness import Robustness, Trial, robustness
from .sphere import Sphere, SphereLayer, sphere
from .summary import Summary, SummaryLine, summary

__all__ = [
    "ActivationEffect",
    "BatchWidth",
    "Block",
    "Curvature",
    "Diagnosis",
    "Drop",
    "Finding",
    "Growth",
    "Invariance",
    "KappaSlopes",
    "Monitor",
    "OperationInput",
    "Pair",
    "PruneTrial",
    "Pruning",
    "Rescaled",
    "Rescaling",
    "Robustness",
    "Slope",
    "Sphere",
    "SphereLayer",
    "Summary",
    "SummaryLine",
    "Trial",
    "Unit",
    "Width",
    "activation_effect",
    "batch_width",
    "curvature",
    "diagnose",
    "invariance",
    "kappa_slopes",
    "prune",
    "remove_channels",
    "rescaling",
    "robustness",
    "sphere",
    "summary",
]

_OLD_NAMES = {"survival": "activation_effect", "Survival": "ActivationEffect", "Arrival": "OperationInput"}


def __getattr__(name: str) -> Any:
    """Old names work until 0.3."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _OLD_NAMES[name]
    warnings.warn(f"{name} is now {new}; {name} will be removed in 0.3", DeprecationWarning, stacklevel=2)
    return globals()[new]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
