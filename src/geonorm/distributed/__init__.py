"""The same statistics over the processes of a group."""

from .across import Across, grouping
from .gather import gather_rows
from .groups import WORLD, Group, group_name

__all__ = ["WORLD", "Across", "Group", "gather_rows", "group_name", "grouping"]
