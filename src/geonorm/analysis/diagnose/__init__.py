"""``diagnose``: faults in a network, the evidence for each, and what to do about it."""

from .diagnose import diagnose
from .diagnosis import Diagnosis
from .finding import Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
