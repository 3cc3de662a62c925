"""``diagnose``: what is wrong in a network, by which evidence, and what to do."""

from .diagnose import diagnose
from .diagnosis import Diagnosis
from .finding import Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
