"""Callbacks for training frameworks.

``TrainingWatch`` says what to do; the files named after a framework pass it on. Each of those needs its framework, and
``import geonorm`` imports none of them.
"""

from .training_watch import TrainingWatch

__all__ = ["TrainingWatch"]
