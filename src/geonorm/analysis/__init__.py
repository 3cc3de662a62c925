"""Reading a network: one file per diagnostic, each a function of a model and data that returns a plain result."""

from .batch_width import BatchWidth, Width, batch_width
from .invariance import Invariance, Unit, invariance
from .sphere import Sphere, SphereLayer, sphere
from .survival import Arrival, Survival, survival

__all__ = [
    "Arrival",
    "BatchWidth",
    "Invariance",
    "Sphere",
    "SphereLayer",
    "Survival",
    "Unit",
    "Width",
    "batch_width",
    "invariance",
    "sphere",
    "survival",
]
