"""Optimization on the sphere for scale-invariant weights."""

from .sphere_sgd import SphereSGD
from .spheres import SphereGroups, project_scale_invariant

__all__ = ["SphereGroups", "SphereSGD", "project_scale_invariant"]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
