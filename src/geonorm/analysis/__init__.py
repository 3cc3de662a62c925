"""Reading a network: one file per diagnostic, each a function of a model and data that returns a plain result."""

from .invariance import Invariance, Unit, invariance

__all__ = ["Invariance", "Unit", "invariance"]
