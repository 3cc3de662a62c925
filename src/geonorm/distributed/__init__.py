"""The same statistics over the processes of a group."""

from .across import Across, grouping
from .groups import WORLD, Group, group_name

__all__ = ["WORLD", "Across", "Group", "group_name", "grouping"]
