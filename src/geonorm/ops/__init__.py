"""How the few hot functions run: operator schemas, the plain-torch implementation, and the choice between
implementations."""

from ._center import Center, center
from .checks import check_values
from .grouping import Axes, Grouping, Segments
from .running import follow

__all__ = ["Axes", "Center", "Grouping", "Segments", "center", "check_values", "follow"]
