"""The same statistics over the processes of a group."""

from .across import Across, grouping
from .groups import Group, group_name

__all__ = ["Across", "Group", "group_name", "grouping"]
