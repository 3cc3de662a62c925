"""Reading a network: one file per diagnostic, each a function of a model and data that returns a plain result."""

from .batch_width import BatchWidth, Width, batch_width
from .diagnose import Diagnosis, diagnose
from .finding import Finding
from .invariance import Invariance, Unit, invariance
from .sphere import Sphere, SphereLayer, sphere
from .survival import Arrival, Survival, survival

__all__ = [
    "Arrival",
    "BatchWidth",
    "Diagnosis",
    "Finding",
    "Invariance",
    "Sphere",
    "SphereLayer",
    "Survival",
    "Unit",
    "Width",
    "batch_width",
    "diagnose",
    "invariance",
    "sphere",
    "survival",
]
