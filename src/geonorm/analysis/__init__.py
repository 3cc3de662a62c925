"""Reading a network: one file per diagnostic, each a function of a model and data that returns a plain result."""

from ..introspect.invariance import Unit
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
from .survival import Arrival, Survival, survival

__all__ = [
    "Arrival",
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
    "Survival",
    "Trial",
    "Unit",
    "Width",
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
    "survival",
]
